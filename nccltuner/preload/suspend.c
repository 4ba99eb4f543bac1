/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator whose GPU memory NCCL gives back for a while, from 2.30 on, as servers do between two models. All ranks do it, and none of them
 * has a call of it under way; memory of ours stays. Windows stay where they are in 2.30.7, which says so nowhere, and of 2.32.3 there is no source.
 * So meanwhile nothing goes into peers' windows directly, and then NCCL is asked again where they are. Each rank may do so by itself: kernels
 * agree at the beginning of a call.
 */
#include "intercepted.h"
#include "windows.h"

#define EXPORT __attribute__((visibility("default")))
#define FIND(NAME) dyn_find(&counted_##NAME.real, #NAME, (void *)NAME, __builtin_return_address(0))

enum { SUCCESS = 0 }; /* ncclResult_t */

DYN_INTERCEPTED(ncclCommSuspend)
EXPORT int ncclCommSuspend(void *comm, int flags);
EXPORT int ncclCommSuspend(void *comm, int flags) {
  DYN_COUNT(ncclCommSuspend);
  int (*real)(void *, int) = (int (*)(void *, int))FIND(ncclCommSuspend);
  if (real == NULL) return DYN_SYSTEM_ERROR;
  dyn_windows_suspend(comm);
  int result = real(comm, flags);
  if (result != SUCCESS && !dyn_in_group()) dyn_windows_resume(comm); /* as where it cannot be done: nothing was given back */
  return result;
}

DYN_INTERCEPTED(ncclCommResume)
EXPORT int ncclCommResume(void *comm);
EXPORT int ncclCommResume(void *comm) {
  DYN_COUNT(ncclCommResume);
  int (*real)(void *) = (int (*)(void *))FIND(ncclCommResume);
  if (real == NULL) return DYN_SYSTEM_ERROR;
  int result = real(comm);
  if (result == SUCCESS && !dyn_in_group()) dyn_windows_resume(comm); /* a group does it at its end, of which nothing is told: they stay unknown */
  return result;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which NCCL is this? No tuner interface says it, but the logger that NCCL hands over is a function inside it.
 */
#include <dlfcn.h>

#include "comm.h"

uint32_t dyn_nccl_version(dyn_logger log) {
  static atomic_int known;
  int version = atomic_load(&known);
  if (version > 0) return (uint32_t)version;
  int (*get)(int *) = NULL;
  Dl_info info;
  void *library = NULL;
  if (log && dladdr((void *)log, &info) && info.dli_fname) library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  /* ISO C has no conversion between object and function pointers; POSIX defines this one. */
  *(void **)&get = dlsym(library ? library : RTLD_DEFAULT, "ncclGetVersion");
  if (!get && library) *(void **)&get = dlsym(RTLD_DEFAULT, "ncclGetVersion"); /* a program linked statically */
  if (!get || get(&version) != 0 || version < 0) version = 0;
  if (library) dlclose(library);
  atomic_store(&known, version);
  return (uint32_t)version;
}

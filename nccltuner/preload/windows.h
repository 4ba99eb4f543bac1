/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the program has registered with NCCL (ncclCommWindowRegister), by communicator.
 *
 * What ranks know in common: registering is collective, and whoever gives NCCL a buffer in a window with
 * NCCL_WIN_COLL_SYMMETRIC promises that every rank gives one at the same offset of the same window, for send and for receive
 * each, where the collective has such a thing (NCCL's guide, win_flags; NCCL_CHECK_MODE=DEBUG_GLOBAL looks, src/misc/argcheck.cc).
 * NCCL itself rests on it: it looks at the address alone, on each rank by itself (ncclDevrFindWindow, ncclGetSymRegType), and
 * a rank for which it says otherwise runs another kernel than its peers. So dyn_window_of with 0 bytes says the same on all
 * ranks of a program that is right for NCCL. Windows of one registration may differ in size from rank to rank; that what a
 * call reads and writes lies in all of them is the program's promise, too.
 *
 * A window counts from the call that registers it, in a group as well, where NCCL makes windows before it looks at the
 * group's collectives; one that NCCL did not make (no handle: no symmetric memory on this communicator) is gone when the call
 * or its outermost group ends. Up to 2.28 NCCL gives a handle also where a communicator has no symmetric memory.
 *
 * As NCCL wants it, one thread at a time uses a communicator, in these functions too; of different communicators any number.
 * Nothing here waits, and a look takes no lock; dyn_windows_reserve alone allocates. A communicator has its part until
 * dyn_windows_release, and then another one may.
 */
#ifndef DYN_WINDOWS_H
#define DYN_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "peers.h"

#define DYN_MAX_WINDOWS 1024 /* of one communicator at a time */
#define DYN_MAX_WINDOWED 256 /* communicators of a process whose windows are known */

/* NCCL_WIN_*, nccl.h 2.32.3 */
#define DYN_WIN_COLL_SYMMETRIC 1
#define DYN_WIN_GIN_ONLY 4

struct dyn_windows; /* of one communicator */

/* Where an address lies. */
struct dyn_window_place {
  void *handle;     /* ncclWindow_t; NULL: the group that registers it has not ended */
  uint64_t offset;  /* bytes from the window's beginning: the same on all ranks, as far as the collective wants it (above) */
  uint64_t bytes;   /* of the window on this rank */
  int flags;        /* NCCL_WIN_*, DYN_WIN_COLL_SYMMETRIC among them */
  uint64_t number;  /* of the communicator's calls that register, from 1: the same on all ranks */
  const struct dyn_peers *peers; /* until the next change; NULL: it is not known where they have it */
};

/* device.c: dyn_peers_of, of the communicator's ranks. */
bool dyn_device_peers(const void *comm, void *window, const void *at, uint64_t bytes, struct dyn_peers *peers);

/* Before the program has the communicator, so that none of its windows is missed. NULL: there is no room, and nothing will be known. */
struct dyn_windows *dyn_windows_reserve(void);
/* The communicator is made; NULL: it is not, and the part is free. */
void dyn_windows_fill(struct dyn_windows *windows, const void *comm);
void dyn_windows_release(struct dyn_windows *windows);
/* NULL: windows of this communicator are not known. */
struct dyn_windows *dyn_windows_of(const void *comm);

/* True: at, and so many bytes from it, lies in one window with DYN_WIN_COLL_SYMMETRIC. windows may be NULL: false. place may be NULL.
 * False for ever once a communicator has had more than DYN_MAX_WINDOWS, or has windows of which nobody tells when they are made
 * (it does not block, dyn_windows_lost). */
bool dyn_window_of(const struct dyn_windows *windows, const void *at, size_t bytes, struct dyn_window_place *place);
/* Any is registered now: what most programs never have. */
bool dyn_windows_any(const struct dyn_windows *windows);
/* The program has called for one, whatever became of it, and whether or not it is there yet: the same on all ranks, for such calls are
 * collective, and promised by nobody. */
bool dyn_windows_ever(const struct dyn_windows *windows);
bool dyn_windows_lost(const struct dyn_windows *windows);

/* NCCL looks at registration only where it has symmetric kernels: AllGather, and sums of these types (src/device/symmetric/generate.py).
 * So here: a program that registers on one rank and not on another is wrong to us where it is wrong to NCCL. */
bool dyn_windows_matter(int collective, int op, int datatype);

/* calls.c: behind ncclCommWindowRegister, which gave result and is to leave the handle in win, and before ncclCommWindowDeregister. */
void dyn_window_comes(const void *comm, const void *at, size_t bytes, void **win, int flags, int result);
void dyn_window_goes(const void *comm, const void *handle);
/* suspend.c: where peers have the communicator's windows is not known any more; it is asked again. */
void dyn_windows_suspend(const void *comm);
void dyn_windows_resume(const void *comm);
/* This thread's outermost group has ended. */
void dyn_windows_group_ended(int result);

#endif

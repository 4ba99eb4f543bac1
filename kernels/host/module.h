/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../kernels.cuh, loaded into a CUDA context.
 */
#ifndef DYN_HOST_MODULE_H
#define DYN_HOST_MODULE_H

#include "driver.h"

#define DYN_LONG_BYTES (UINT64_C(8) << 20) /* as NCCL's tests count a call; the program's domain is better at 4 MiB, NCCL's at 16 */
#define DYN_NUM_TYPES 12 /* ncclDataType_t: ncclInt8 to ncclFloat8e5m2 */

enum dyn_typed {
  DYN_TYPED_ONE_SHOT,
  DYN_TYPED_TWO_SHOT,
  DYN_TYPED_BULK,
  DYN_TYPED_REDUCE_SCATTER,
  DYN_TYPED_REDUCE_SCATTER_BULK,
  DYN_NUM_TYPED
};

struct dyn_module {
  dyn_context context;
  unsigned long long contextId;
  void *typed[DYN_NUM_TYPED][DYN_NUM_TYPES];
  void *allGather, *allGatherBulk, *allToAll, *allToAllBulk, *allToAllV, *broadcast, *broadcastBulk;
  void *rmsNorm[DYN_NUM_TYPES]; /* NULL: not of this type */
  struct dyn_launch_attribute attributes[2]; /* of a launch so many: of any call, and of one of DYN_LONG_BYTES or more */
  unsigned numAttributes, numOfLong;
  struct dyn_module *next;
};

/* The kernels in this thread's context, loaded at the first call for it; NULL: they cannot be had, with the reason said
 * once a process. Loads and compiles, so never while a stream is captured or a call waits. */
const struct dyn_module *dyn_module_get(dyn_context context);

/* A fatbin of ours: named by a variable of the environment, else beside this library. path: of what is meant, also where it
 * cannot be had. NULL with *why NULL: nobody named a file, and there is none. */
void *dyn_fatbin_read(const char *name, const char *variable, char path[4096], const char **why);
bool dyn_fatbin_there(const char *name, const char *variable);
bool dyn_function_get(void *module, const char *name, void **function);
extern const char *const dyn_type_names[DYN_NUM_TYPES]; /* as kernels have them: ../types.h */
/* DYN_NORM_TYPES there, by ncclDataType_t. */
static inline bool dyn_is_norm_type(int type) { return type == 6 || type == 7 || type == 9; }

#endif

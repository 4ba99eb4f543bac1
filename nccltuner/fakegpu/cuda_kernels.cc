/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels under the names of kernels.cuh. What a GPU has for them machine.h has for threads of a CPU.
 */
#define DYN_KERNEL_MUTATE 0
#include "../../kernels/kernels.cuh"

#include <cstring>

#include "cuda_kernels.h"

thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static thread_local pthread_barrier_t *barrier;
static thread_local float *shared;

void __syncthreads() {
  if (blockDim.x > 1) pthread_barrier_wait(barrier);
}
float *blockShared() { return shared; }

#define ONE(NAME, BYTES) {#NAME, BYTES, 0, [](const kernel_arguments *a) { NAME(a->call); }},
#define TYPED(NAME, TYPE) \
  ONE(oneShot_##NAME, sizeof(TYPE)) \
  ONE(twoShot_##NAME, sizeof(TYPE)) \
  {"bulk_" #NAME, sizeof(TYPE), sizeof(dyn_bulk), [](const kernel_arguments *a) { bulk_##NAME(a->call, a->second.bulk); }}, \
  ONE(reduceScatter_##NAME, sizeof(TYPE)) \
  {"reduceScatterBulk_" #NAME, sizeof(TYPE), sizeof(dyn_bulk), \
   [](const kernel_arguments *a) { reduceScatterBulk_##NAME(a->call, a->second.bulk); }},

#define NORM(NAME, TYPE) \
  {"allReduceAddRmsNorm_" #NAME, sizeof(TYPE), sizeof(dyn_rms_norm), \
   [](const kernel_arguments *a) { allReduceAddRmsNorm_##NAME(a->call, a->second.norm); }},

static const kernel kernels[] = {
    DYN_TYPES(TYPED)
    DYN_NORM_TYPES(NORM)
    ONE(allGather, 1)
    {"allGatherBulk", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { allGatherBulk(a->call, a->second.bulk); }},
    ONE(allToAll, 1)
    {DYN_KERNEL_LAYOUT_NAME, 1, 0, [](const kernel_arguments *) { DYN_KERNEL_LAYOUT(); }},
    {"allToAllBulk", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { allToAllBulk(a->call, a->second.bulk); }},
    {"broadcast", 1, sizeof(int), [](const kernel_arguments *a) { broadcast(a->call, a->second.root); }},
};

const kernel *kernel_find(const char *name) {
  for (const kernel &k : kernels)
    if (strcmp(k.name, name) == 0) return &k;
  return nullptr;
}

void kernel_thread(const kernel_launch *launch, unsigned block, unsigned thread, pthread_barrier_t *ofBlock, float *ofBlockShared) {
  gridDim.x = launch->blocks, blockDim.x = launch->threads;
  blockIdx.x = block, threadIdx.x = thread;
  barrier = ofBlock;
  shared = ofBlockShared;
  launch->kernel->run(&launch->arguments);
}

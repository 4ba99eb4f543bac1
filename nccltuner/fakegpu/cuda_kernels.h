/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../../kernels, compiled for this CPU, for the C of the stand-in.
 */
#ifndef FAKEGPU_CUDA_KERNELS_H
#define FAKEGPU_CUDA_KERNELS_H

#include "../../kernels/device/call.h"
#include "gin_fake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a launch copies: call and second, or of a kernel on GIN comm and gin; and parts. */
struct kernel_arguments {
  union dyn_nccl_dev_comm comm;
  struct dyn_gin_call gin;
  struct dyn_call call;
  union {
    struct dyn_bulk bulk;
    struct dyn_rms_norm norm;
    int root;
  } second;
  struct dyn_parts parts;
};

struct kernel {
  const char *name;
  size_t elementBytes; /* of what count counts */
  size_t secondBytes;  /* of the second argument; 0: there is none */
  void (*run)(const struct kernel_arguments *arguments);
  int onGin; /* 0: not; blocks that go together */
  int hasParts; /* as a third argument */
};

struct kernel_launch {
  const struct kernel *kernel;
  struct kernel_arguments arguments;
  unsigned blocks, threads; /* that run */
  double beginNs, sentNs, endNs; /* virtual */
};

const struct kernel *kernel_find(const char *name); /* NULL: there is none */
/* cuda_nic.cc: the kernels that play a network card for NCCL's GIN (kernels/carrier/nic), in threads of their own, until they end. */
struct nic;
extern const char nic_kernel_name[], nic_fed_name[], nic_watch_name[];
void nic_run(const struct nic *nic);
void nic_watch(const struct nic *nic);

/* What one thread of a launch does; shared, KERNEL_SHARED numbers and one for each, is for the launch's threads of this block. */
#define KERNEL_SHARED 128
void kernel_thread(const struct kernel_launch *launch, unsigned block, unsigned thread, float *shared);

#ifdef __cplusplus
}
#endif

#endif

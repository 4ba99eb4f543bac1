/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of NCCL's own, which it registers by itself in a graph: cudaMalloc's it cannot (ipcRegisterBuffer, src/transport/p2p.cc, 2.28.9).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_fake.h"

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct owned { const char *at; size_t bytes; } ownMemory[16]; /* the program's first ones */
static int owned;

int nccl_owns(const void *at) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < owned; i++) found |= (const char *)at >= ownMemory[i].at && (const char *)at < ownMemory[i].at + ownMemory[i].bytes;
  pthread_mutex_unlock(&lock);
  return found;
}

FAKEGPU_API ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  CUdeviceptr address;
  const char *text = getenv("FAKEGPU_GRAPH_REGISTER");
  if (text != NULL && strcmp(text, "refuse") == 0) return nccl_fail(ncclUnhandledCudaError, "no memory of NCCL's");
  if (cuMemAlloc_v2(&address, bytes) != 0) return nccl_fail(ncclUnhandledCudaError, "no memory");
  *memory = (void *)(uintptr_t)address;
  pthread_mutex_lock(&lock);
  if (owned < 16) ownMemory[owned++] = (struct owned){(const char *)*memory, bytes};
  pthread_mutex_unlock(&lock);
  return 0;
}

FAKEGPU_API ncclResult_t ncclMemFree(void *memory) { return cuMemFree_v2((CUdeviceptr)(uintptr_t)memory) == 0 ? 0 : nccl_fail(ncclInvalidArgument, "no memory of NCCL's"); }

/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's GIN plugin ABI, v14, written by us: what NCCL 2.30.5 and later take GIN of type GDAKI from.
 *
 * Source: NVIDIA/nccl v2.30.7-1, src/include/plugin/gin/gin_v14.h. `make abi NCCL_TREE=...` compiles test/abi_check.cc against a
 * tree. That 2.32.3 looks for v14 first and has the same structs its library says, which carries debug information: gdb -batch -ex
 * 'ptype /o ncclGin_v14_t' -ex 'ptype /o ncclGinConfig_v14_t' -ex 'p ncclGinVersion' libnccl.so.2
 */
#ifndef DYN_CARRIER_NCCL_GIN_ABI_H
#define DYN_CARRIER_NCCL_GIN_ABI_H

#include "nccl_rma_abi.h"

typedef struct {
  bool supportsStrongSignals;
  bool supportsVASignals; /* in windows */
} ncclGinProperties_v14_t;

typedef struct {
  int nSignals;  /* of each context */
  int nCounters; /* likewise */
  int nContexts;
  int queueDepth; /* 0: the plugin's affair */
  int trafficClass;
  int backendVersion; /* what the device code was compiled for: GDAKI_BACKEND, or less of an older NCCL */
  int rankStride;     /* only ranks so far apart put to each other */
} ncclGinConfig_v14_t;

/* NCCL_GIN_GDAKI_GPU_CONTEXT_VERSION, which is asked for from 2.30.5 on: src/transport/net_ib/gdaki/gpucontext/gpucontext.h, and
 * gdakiBackendMinVersions of src/gin/gin_host.cc, the same in 2.30.7's source and in 2.32.3's library. */
enum { GDAKI_BACKEND = 2 };

typedef struct {
  const char *name;
  int (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logger);
  int (*devices)(int *ndev);
  int (*getGinProperties)(ncclGinProperties_v14_t *props);
  int (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  int (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  int (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
  int (*createContext)(void *collComm, ncclGinConfig_v14_t *config, void **ginCtx, ncclNetDeviceHandle_v11_t **devHandle);
  int (*regMrSym)(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **ginHandle);
  int (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd, uint64_t flags, void **mhandle,
                        void **ginHandle);
  int (*deregMrSym)(void *collComm, void *mhandle);
  int (*destroyContext)(void *ginCtx);
  int (*closeColl)(void *collComm);
  int (*closeListen)(void *listenComm);
  int (*ginProgress)(void *ginCtx);
  int (*queryLastError)(void *ginCtx, bool *hasError);
  int (*finalize)(void *ctx);
} ncclGin_v14_t;

#define DYN_CARRIER_GIN_LAYOUT(SAME_SIZE, SAME_OFFSET) \
  SAME_SIZE(ncclGin_v14_t, 136) \
  SAME_OFFSET(ncclGin_v14_t, getGinProperties, 24) \
  SAME_OFFSET(ncclGin_v14_t, getProperties, 32) \
  SAME_OFFSET(ncclGin_v14_t, listen, 40) \
  SAME_OFFSET(ncclGin_v14_t, connect, 48) \
  SAME_OFFSET(ncclGin_v14_t, createContext, 56) \
  SAME_OFFSET(ncclGin_v14_t, regMrSym, 64) \
  SAME_OFFSET(ncclGin_v14_t, deregMrSym, 80) \
  SAME_OFFSET(ncclGin_v14_t, destroyContext, 88) \
  SAME_OFFSET(ncclGin_v14_t, closeColl, 96) \
  SAME_OFFSET(ncclGin_v14_t, closeListen, 104) \
  SAME_OFFSET(ncclGin_v14_t, ginProgress, 112) \
  SAME_OFFSET(ncclGin_v14_t, queryLastError, 120) \
  SAME_OFFSET(ncclGin_v14_t, finalize, 128) \
  SAME_SIZE(ncclGinProperties_v14_t, 2) \
  SAME_OFFSET(ncclGinProperties_v14_t, supportsVASignals, 1) \
  SAME_SIZE(ncclGinConfig_v14_t, 28) \
  SAME_OFFSET(ncclGinConfig_v14_t, nCounters, 4) \
  SAME_OFFSET(ncclGinConfig_v14_t, nContexts, 8) \
  SAME_OFFSET(ncclGinConfig_v14_t, queueDepth, 12) \
  SAME_OFFSET(ncclGinConfig_v14_t, backendVersion, 20) \
  SAME_OFFSET(ncclGinConfig_v14_t, rankStride, 24)

#ifndef __cplusplus
DYN_CARRIER_GIN_LAYOUT(DYN_CARRIER_SIZE, DYN_CARRIER_OFFSET)
#endif

#endif

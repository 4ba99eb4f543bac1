/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's RMA plugin ABI, v14, written by us: what NCCL 2.30.5 and later put their GIN proxy on.
 *
 * Source: NVIDIA/nccl v2.30.7-1, src/include/plugin/rma/rma_v14.h, net/net_v12.h, nccl_net.h. `make abi NCCL_TREE=...` compiles
 * test/abi_check.cc against a tree. 2.31.2 and 2.32.3, of which there is no source, still take v14; that the struct is the same
 * there their libraries say, which carry debug information: gdb -batch -ex 'ptype /o ncclRma_v14_t' libnccl.so.2
 */
#ifndef DYN_CARRIER_NCCL_RMA_ABI_H
#define DYN_CARRIER_NCCL_RMA_ABI_H

#include "nccl_net_abi.h"

enum { NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET = 2 }; /* beside NCCL_NET_MR_FLAG_FORCE_SO; a hint */
enum { NCCL_NET_ID_UNDEF = -1 };

typedef struct {
  int ndevs;
  int devs[8];
} ncclNetVDeviceProps_v12_t;

typedef struct {
  char *name;
  char *pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed; /* Mbit/s */
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
} ncclNetProperties_v12_t;

typedef struct {
  int nContexts;
  int trafficClass;
  int rankStride; /* only ranks so far apart put to each other */
} ncclRmaConfig_v14_t;

typedef struct {
  const char *name;
  int (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logger);
  int (*devices)(int *ndev);
  int (*getProperties)(int dev, ncclNetProperties_v12_t *props);
  int (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  int (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
  int (*createContext)(void *collComm, ncclRmaConfig_v14_t *config, void **rmaCtx);
  int (*regMrSym)(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle);
  int (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd, uint64_t flags, void **mhandle);
  int (*deregMrSym)(void *collComm, void *mhandle);
  int (*destroyContext)(void *rmaCtx);
  int (*closeColl)(void *collComm);
  int (*closeListen)(void *listenComm);
  int (*iput)(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle,
              uint32_t rank, void **request);
  int (*iputSignal)(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle,
                    uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue, uint32_t signalOp, bool isStrongSignal,
                    void **request);
  int (*iget)(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size, uint64_t localOff, void *localMhandle,
              uint32_t rank, void **request);
  int (*iflush)(void *rmaCtx, int context, void *mhandle, uint32_t rank, void **request);
  int (*test)(void *collComm, void *request, int *done);
  int (*rmaProgress)(void *rmaCtx);
  int (*queryLastError)(void *rmaCtx, bool *hasError);
  int (*finalize)(void *ctx);
} ncclRma_v14_t;

#define DYN_CARRIER_RMA_LAYOUT(SAME_SIZE, SAME_OFFSET) \
  SAME_SIZE(ncclRma_v14_t, 168) \
  SAME_OFFSET(ncclRma_v14_t, getProperties, 24) \
  SAME_OFFSET(ncclRma_v14_t, connect, 40) \
  SAME_OFFSET(ncclRma_v14_t, createContext, 48) \
  SAME_OFFSET(ncclRma_v14_t, regMrSym, 56) \
  SAME_OFFSET(ncclRma_v14_t, deregMrSym, 72) \
  SAME_OFFSET(ncclRma_v14_t, destroyContext, 80) \
  SAME_OFFSET(ncclRma_v14_t, closeColl, 88) \
  SAME_OFFSET(ncclRma_v14_t, iput, 104) \
  SAME_OFFSET(ncclRma_v14_t, iputSignal, 112) \
  SAME_OFFSET(ncclRma_v14_t, iget, 120) \
  SAME_OFFSET(ncclRma_v14_t, iflush, 128) \
  SAME_OFFSET(ncclRma_v14_t, test, 136) \
  SAME_OFFSET(ncclRma_v14_t, rmaProgress, 144) \
  SAME_OFFSET(ncclRma_v14_t, queryLastError, 152) \
  SAME_OFFSET(ncclRma_v14_t, finalize, 160) \
  SAME_SIZE(ncclRmaConfig_v14_t, 12) \
  SAME_OFFSET(ncclRmaConfig_v14_t, rankStride, 8) \
  SAME_SIZE(ncclNetProperties_v12_t, 128) \
  SAME_OFFSET(ncclNetProperties_v12_t, ptrSupport, 24) \
  SAME_OFFSET(ncclNetProperties_v12_t, maxRecvs, 52) \
  SAME_OFFSET(ncclNetProperties_v12_t, netDeviceType, 56) \
  SAME_OFFSET(ncclNetProperties_v12_t, vProps, 64) \
  SAME_OFFSET(ncclNetProperties_v12_t, maxP2pBytes, 104) \
  SAME_OFFSET(ncclNetProperties_v12_t, maxMultiRequestSize, 120) \
  SAME_OFFSET(ncclNetProperties_v12_t, railId, 124) \
  SAME_OFFSET(ncclNetProperties_v12_t, planeId, 126)

#ifndef __cplusplus
DYN_CARRIER_RMA_LAYOUT(DYN_CARRIER_SIZE, DYN_CARRIER_OFFSET)
#endif

#endif

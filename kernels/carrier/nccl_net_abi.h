/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's network and GIN plugin ABI, v11, written by us. ncclResult_t is an int here, with NCCL's numbers.
 *
 * Source: NVIDIA/nccl v2.28.9-1, src/include/plugin/net/net_v11.h, src/include/plugin/nccl_net.h, nccl_device/net_device.h.
 * Sizes and offsets at the end are those that a program compiled against that tree printed; `make abi NCCL_TREE=...` compiles
 * test/abi_check.cc against a tree again.
 */
#ifndef DYN_CARRIER_NCCL_NET_ABI_H
#define DYN_CARRIER_NCCL_NET_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
};
enum { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3 };
enum { NCCL_INIT = 0x1, NCCL_NET = 0x10 };
enum { NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2 };
enum { NCCL_NET_DEVICE_HOST = 0, NCCL_NET_DEVICE_GIN_PROXY = 2, NCCL_NET_DEVICE_GIN_GDAKI = 3 };
enum { NCCL_NET_MR_FLAG_FORCE_SO = 1 };
enum { NCCL_NET_SIGNAL_OP_INC = 1, NCCL_NET_SIGNAL_OP_ADD = 2 };
enum { NCCL_NET_HANDLE_MAXSIZE = 128, NCCL_NET_MAX_DEVS_PER_NIC = 4, NCCL_NET_MAX_REQUESTS = 32 };
#define NCCL_GIN_PROXY_VERSION 100 /* nccl_device/gin/proxy/gin_proxy_device_host_common.h */
#define NCCL_GIN_GDAKI_VERSION 100 /* nccl_device/gin/gdaki/gin_gdaki_device_host_common.h */

typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

typedef struct {
  int ndevs;
  int devs[NCCL_NET_MAX_DEVS_PER_NIC];
} ncclNetVDeviceProps_v11_t;

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
  ncclNetVDeviceProps_v11_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
} ncclNetProperties_v11_t;

/* What NCCL's device code gets. */
typedef struct {
  int netDeviceType;
  int netDeviceVersion;
  void *handle;
  size_t size;
  int needsProxyProgress;
} ncclNetDeviceHandle_v11_t;

/* What only passes through, or is never reached, is void *. */
typedef struct {
  const char *name;
  int (*init)(void **ctx, uint64_t commId, void *config, ncclDebugLogger_t logger, void *profiler);
  int (*devices)(int *ndev);
  int (*getProperties)(int dev, ncclNetProperties_v11_t *props);
  int (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  int (*connect)(void *ctx, int dev, void *handle, void **sendComm, void **sendDevComm);
  int (*accept)(void *listenComm, void **recvComm, void **recvDevComm);
  int (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
  int (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
  int (*deregMr)(void *comm, void *mhandle);
  int (*isend)(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
  int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles, void **request);
  int (*iflush)(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
  int (*test)(void *request, int *done, int *sizes);
  int (*closeSend)(void *comm);
  int (*closeRecv)(void *comm);
  int (*closeListen)(void *comm);
  int (*getDeviceMr)(void *comm, void *mhandle, void **deviceHandle);
  int (*irecvConsumed)(void *comm, int n, void *request);
  int (*makeVDevice)(int *dev, ncclNetVDeviceProps_v11_t *props);
  int (*finalize)(void *ctx);
  int (*setNetAttr)(void *ctx, void *attributes);
} ncclNet_v11_t;

typedef struct {
  const char *name;
  int (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logger);
  int (*devices)(int *ndev);
  int (*getProperties)(int dev, ncclNetProperties_v11_t *props);
  int (*listen)(void *ctx, int dev, void *handle, void **listenComm);
  int (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
  int (*createContext)(void *collComm, int nSignals, int nCounters, void **ginCtx, void **devHandle);
  int (*regMrSym)(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **ginHandle);
  int (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd, uint64_t flags, void **mhandle,
                        void **ginHandle);
  int (*deregMrSym)(void *collComm, void *mhandle);
  int (*destroyContext)(void *ginCtx);
  int (*closeColl)(void *collComm);
  int (*closeListen)(void *listenComm);
  int (*iput)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
              void **request);
  int (*iputSignal)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
                    uint64_t signalOff, void *signalMhandle, uint64_t signalValue, uint32_t signalOp, void **request);
  int (*test)(void *collComm, void *request, int *done);
  int (*ginProgress)(void *collComm);
  int (*queryLastError)(void *ginCtx, bool *hasError);
  int (*finalize)(void *ctx);
} ncclGin_v11_t;

#define DYN_CARRIER_LAYOUT(SAME_SIZE, SAME_OFFSET) \
  SAME_SIZE(ncclNet_v11_t, 176) \
  SAME_OFFSET(ncclNet_v11_t, listen, 32) \
  SAME_OFFSET(ncclNet_v11_t, regMrDmaBuf, 64) \
  SAME_OFFSET(ncclNet_v11_t, makeVDevice, 152) \
  SAME_OFFSET(ncclNet_v11_t, finalize, 160) \
  SAME_SIZE(ncclGin_v11_t, 152) \
  SAME_OFFSET(ncclGin_v11_t, connect, 40) \
  SAME_OFFSET(ncclGin_v11_t, regMrSym, 56) \
  SAME_OFFSET(ncclGin_v11_t, closeColl, 88) \
  SAME_OFFSET(ncclGin_v11_t, iput, 104) \
  SAME_OFFSET(ncclGin_v11_t, iputSignal, 112) \
  SAME_OFFSET(ncclGin_v11_t, test, 120) \
  SAME_OFFSET(ncclGin_v11_t, ginProgress, 128) \
  SAME_OFFSET(ncclGin_v11_t, finalize, 144) \
  SAME_SIZE(ncclNetDeviceHandle_v11_t, 32) \
  SAME_OFFSET(ncclNetDeviceHandle_v11_t, handle, 8) \
  SAME_OFFSET(ncclNetDeviceHandle_v11_t, needsProxyProgress, 24) \
  SAME_SIZE(ncclNetProperties_v11_t, 112) \
  SAME_OFFSET(ncclNetProperties_v11_t, ptrSupport, 24) \
  SAME_OFFSET(ncclNetProperties_v11_t, latency, 44) \
  SAME_OFFSET(ncclNetProperties_v11_t, maxRecvs, 52) \
  SAME_OFFSET(ncclNetProperties_v11_t, netDeviceType, 56) \
  SAME_OFFSET(ncclNetProperties_v11_t, vProps, 64) \
  SAME_OFFSET(ncclNetProperties_v11_t, maxP2pBytes, 88) \
  SAME_OFFSET(ncclNetProperties_v11_t, maxMultiRequestSize, 104)

#ifndef __cplusplus
#define DYN_CARRIER_SIZE(type, bytes) _Static_assert(sizeof(type) == bytes, #type);
#define DYN_CARRIER_OFFSET(type, field, bytes) _Static_assert(offsetof(type, field) == bytes, #type "." #field);
DYN_CARRIER_LAYOUT(DYN_CARRIER_SIZE, DYN_CARRIER_OFFSET)
#endif

#endif

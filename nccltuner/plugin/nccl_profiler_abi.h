/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's profiler plugin ABI, v1 to v7, written by us. ncclResult_t is an int here and always ncclSuccess (0) from us.
 *
 * Sources, all NVIDIA/nccl; the tag is the first release that asks for the version, every later tag up to v2.30.7 was
 * compared and has the same sizes and offsets (test/abi_facts.sh prints them, test/test_abi_facts.c compares):
 *   v1  v2.23.4-1  src/include/nccl_profiler.h
 *   v2  v2.24.3-1  src/include/nccl_profiler.h
 *   v3  v2.26.2-1  src/include/plugin/profiler/profiler_v3.h
 *   v4  v2.27.3-1  src/include/plugin/profiler/profiler_v4.h
 *   v5  v2.28.3-1  src/include/plugin/profiler/profiler_v5.h (2.28.9 and 2.30.7 differ in line breaks only)
 *   v6  v2.29.2-1  src/include/plugin/profiler/profiler_v6.h
 *   v7  2.32.3     no public tag yet. Layout and state numbers are from the DWARF of libnccl.so.2 in NVIDIA's wheel
 *                  nvidia-nccl-cu13 2.32.3 (gdb: ptype /o ncclProfilerEventDescr_v7_t), which names
 *                  src/include/plugin/profiler/profiler_v7.h line 13 as its origin. Forks carry other headers of this
 *                  name (a userTag string event, an eighth function); they are not NVIDIA's and are not followed.
 */
#ifndef DYN_NCCL_PROFILER_ABI_H
#define DYN_NCCL_PROFILER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Event types, one bit each; src/include/plugin/nccl_profiler.h. */
enum {
  ncclProfileGroup = 1 << 0,
  ncclProfileColl = 1 << 1,
  ncclProfileP2p = 1 << 2,
  ncclProfileProxyOp = 1 << 3,
  ncclProfileProxyStep = 1 << 4,
  ncclProfileProxyCtrl = 1 << 5,
  ncclProfileKernelCh = 1 << 6,    /* v3 */
  ncclProfileNetPlugin = 1 << 7,   /* v3 */
  ncclProfileGroupApi = 1 << 8,    /* v5 */
  ncclProfileCollApi = 1 << 9,     /* v5 */
  ncclProfileP2pApi = 1 << 10,     /* v5 */
  ncclProfileKernelLaunch = 1 << 11, /* v5 */
  ncclProfileCeColl = 1 << 12,     /* v6 */
  ncclProfileCeSync = 1 << 13,     /* v6 */
  ncclProfileCeBatch = 1 << 14,    /* v6 */
  ncclProfileKernelPhase = 1 << 15 /* v7 */
};

/* States of recordEventState that we name; the others are only handed on to a chained profiler. */
enum {
  ncclProfilerProxyStepSendGPUWait = 8,
  ncclProfilerProxyStepRecvGPUWait = 12,
  ncclProfilerProxyCtrlIdle = 13,
  ncclProfilerProxyCtrlAppendEnd = 18,
  ncclProfilerProxyOpInProgress_v4 = 19,
  ncclProfilerProxyStepSendPeerWait_v4 = 20,
  ncclProfilerNetPluginUpdate = 21,
  ncclProfilerKernelChStop = 22,
  ncclProfilerGroupStartApiStop = 23, /* v5 */
  ncclProfilerGroupEndApiStart = 24,  /* v5 */
  ncclProfilerCeCollStart = 25,       /* v6 */
  ncclProfilerCeBatchComplete = 30,   /* v6 */
  ncclProfilerKernelPhaseStop = 31    /* v7 */
};

/* Members that did not change over versions. */
#define DYN_PROXY_OP \
  struct { pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend; } proxyOp
#define DYN_PROXY_STEP struct { int step; } proxyStep
#define DYN_NET_PLUGIN struct { int64_t id; void *data; } netPlugin
#define DYN_KERNEL_CH struct { uint8_t channelId; uint64_t pTimer; } kernelCh /* pTimer: GPU globaltimer, ns */
#define DYN_GROUP_API struct { bool graphCaptured; int groupDepth; } groupApi
#define DYN_KERNEL_LAUNCH struct { void *stream; } kernelLaunch
#define DYN_NAMED_P2P(T) \
  struct { const char *name; uint64_t commHash; T func; void *buff; T datatype; size_t count; int peer; } p2p
#define DYN_P2P_HEAD const char *func; void *buff; const char *datatype; size_t count; int peer; uint8_t nChannels
#define DYN_COLL_API_HEAD \
  const char *func; size_t count; const char *datatype; int root; void *stream; bool graphCaptured
#define DYN_P2P_API_HEAD const char *func; size_t count; const char *datatype; void *stream; bool graphCaptured
#define DYN_COLL_HEAD \
  uint64_t seqNumber; const char *func; const void *sendBuff; void *recvBuff; size_t count; int root; \
  const char *datatype; uint8_t nChannels; uint8_t nWarps; const char *algo; const char *proto
#define DYN_CE_COLL_HEAD \
  uint64_t seqNumber; const char *func; const void *sendBuff; void *recvBuff; size_t count; int root; \
  const char *datatype; const char *syncStrategy; bool intraBatchSync; uint32_t batchSize; uint32_t numBatches; \
  uint32_t ceSeqNum; void *stream
#define DYN_CE_PARTS \
  struct { bool isComplete; int nRanks; } ceCollSync; \
  struct { int numOps; size_t totalBytes; bool useIntraSync; } ceCollBatch

typedef struct {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      uint8_t func; /* ncclFunc_t */
      const void *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      uint8_t datatype; /* ncclDataType_t */
      uint32_t op;
      size_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      uint8_t algo;
      uint8_t proto;
      int isCollnet;
      int isNvls;
    } coll;
    DYN_NAMED_P2P(uint8_t);
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
  };
} ncclProfilerEventDescr_v1_t;

typedef struct {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char *func;
      const void *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      size_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
    } coll;
    DYN_NAMED_P2P(const char *);
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
  };
} ncclProfilerEventDescr_v2_t;

typedef struct {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char *func;
      const void *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
    } coll;
    DYN_NAMED_P2P(const char *);
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
    struct { uint8_t channelId; } kernelCh;
    DYN_NET_PLUGIN;
  };
} ncclProfilerEventDescr_v3_t;

typedef struct {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct { DYN_COLL_HEAD; } coll;
    struct { DYN_P2P_HEAD; } p2p;
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
    DYN_KERNEL_CH;
    DYN_NET_PLUGIN;
  };
} ncclProfilerEventDescr_v4_t;

typedef struct {
  uint64_t type;
  void *parentObj;
  int rank;
  union {
    DYN_GROUP_API;
    struct { DYN_COLL_API_HEAD; } collApi;
    struct { DYN_P2P_API_HEAD; } p2pApi;
    DYN_KERNEL_LAUNCH;
    struct { DYN_COLL_HEAD; void *parentGroup; } coll;
    struct { DYN_P2P_HEAD; void *parentGroup; } p2p;
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
    DYN_KERNEL_CH;
    DYN_NET_PLUGIN;
  };
} ncclProfilerEventDescr_v5_t;

typedef struct {
  uint64_t type;
  void *parentObj;
  int rank;
  union {
    DYN_GROUP_API;
    struct { DYN_COLL_API_HEAD; } collApi;
    struct { DYN_P2P_API_HEAD; } p2pApi;
    DYN_KERNEL_LAUNCH;
    struct { DYN_COLL_HEAD; void *parentGroup; } coll;
    struct { DYN_P2P_HEAD; void *parentGroup; } p2p;
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
    DYN_KERNEL_CH;
    DYN_NET_PLUGIN;
    struct { DYN_CE_COLL_HEAD; } ceColl;
    DYN_CE_PARTS;
  };
} ncclProfilerEventDescr_v6_t;

typedef struct {
  uint64_t type;
  void *parentObj;
  int rank;
  union {
    DYN_GROUP_API;
    struct { DYN_COLL_API_HEAD; uint64_t userTag; } collApi;
    struct { DYN_P2P_API_HEAD; uint64_t userTag; } p2pApi;
    DYN_KERNEL_LAUNCH;
    struct { DYN_COLL_HEAD; void *parentGroup; const char *kernelVariant; bool isSymColl; uint64_t userTag; } coll;
    struct { DYN_P2P_HEAD; void *parentGroup; uint64_t userTag; } p2p;
    DYN_PROXY_OP;
    DYN_PROXY_STEP;
    DYN_KERNEL_CH;
    DYN_NET_PLUGIN;
    struct { DYN_CE_COLL_HEAD; uint64_t userTag; } ceColl;
    DYN_CE_PARTS;
    struct { uint8_t channelId; uint8_t phaseId; const char *phaseName; uint64_t pTimer; } kernelPhase;
  };
} ncclProfilerEventDescr_v7_t;

typedef union {
  struct { size_t transSize; int steps; } proxyOp;
  struct { int appendedProxyOps; } proxyCtrl;
} ncclProfilerEventStateArgs_v1_t;
typedef ncclProfilerEventStateArgs_v1_t ncclProfilerEventStateArgs_v2_t;
typedef ncclProfilerEventStateArgs_v1_t ncclProfilerEventStateArgs_v3_t;

typedef union {
  struct { size_t transSize; } proxyStep;
  struct { int appendedProxyOps; } proxyCtrl;
  struct { void *data; } netPlugin;
  struct { uint64_t pTimer; } kernelCh;
} ncclProfilerEventStateArgs_v4_t;
typedef ncclProfilerEventStateArgs_v4_t ncclProfilerEventStateArgs_v5_t;
typedef ncclProfilerEventStateArgs_v4_t ncclProfilerEventStateArgs_v6_t;
typedef ncclProfilerEventStateArgs_v4_t ncclProfilerEventStateArgs_v7_t;

/* What NCCL looks up by name, ncclProfiler_v1 to ncclProfiler_v7; versions differ in init and startEvent. */
typedef void (*dyn_nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
#define DYN_PROFILER_TABLE(N, ...) \
  typedef struct { \
    const char *name; \
    int (*init)(__VA_ARGS__); \
    int (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_v##N##_t *eDescr); \
    int (*stopEvent)(void *eHandle); \
    int (*recordEventState)(void *eHandle, int eState, ncclProfilerEventStateArgs_v##N##_t *eStateArgs); \
    int (*finalize)(void *context); \
  } ncclProfiler_v##N##_t
#define DYN_INIT_V5 \
  void **context, uint64_t commId, int *eActivationMask, const char *commName, int nNodes, int nranks, int rank, \
    dyn_nccl_logger logfn
DYN_PROFILER_TABLE(1, void **context, int *eActivationMask);
DYN_PROFILER_TABLE(2, void **context, int *eActivationMask);
DYN_PROFILER_TABLE(3, void **context, int *eActivationMask);
DYN_PROFILER_TABLE(4, void **context, int *eActivationMask, const char *commName, uint64_t commHash, int nNodes,
                   int nranks, int rank, dyn_nccl_logger logfn);
DYN_PROFILER_TABLE(5, DYN_INIT_V5);
DYN_PROFILER_TABLE(6, DYN_INIT_V5);
DYN_PROFILER_TABLE(7, DYN_INIT_V5);

#endif

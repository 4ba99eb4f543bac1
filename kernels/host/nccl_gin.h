/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host asks of NCCL for GIN, in plain C: nccl_device.h is C++ for nvcc alone, and these libraries build without NCCL.
 * Of each version that kernels are compiled for what it has of its own; gin/kernels.cu compares it with NCCL's headers where it
 * is compiled, and any other version of the library is refused.
 */
#ifndef DYN_NCCL_GIN_H
#define DYN_NCCL_GIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYN_GIN_NCCL_VERSIONS(X) X(22809) X(23203)

#define DYN_NCCL_MAGIC 0xcafebeefu /* NCCL_API_MAGIC */

enum { DYN_NCCL_GIN_ANY = 0, DYN_NCCL_GIN_PROXY = 2, DYN_NCCL_GIN_GDAKI = 3 }; /* ncclGinType_t, NCCL_NET_DEVICE_GIN_* */
enum { DYN_NCCL_GIN_FULL = 1 };                                                /* NCCL_GIN_CONNECTION_FULL */
enum { DYN_NCCL_WIN_SYMMETRIC = 1 };                                           /* NCCL_WIN_COLL_SYMMETRIC */

struct dyn_nccl_id { char internal[128]; }; /* ncclUniqueId: passed by value */

/* ncclConfig_t of 2.28.9, which later ones take: its version says how they read it. */
#define DYN_NCCL_CONFIG_VERSION 22809
struct dyn_nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
};

/* ncclDevComm: handed to kernels as it is. The LSA team is of ranks in a row. */
struct dyn_nccl_dev_comm_22809 {
  int rank, nRanks;
  uint32_t reserved0;
  int lsaRank, lsaSize;
  uint32_t reserved1;
  uint64_t reserved2[14];
  uint8_t ginContextCount;
  uint8_t ginTypes[4];
  void *ginHandles[4];
  uint32_t ginSignalBase;
  int ginSignalCount;
  uint32_t ginCounterBase;
  int ginCounterCount;
  uint64_t *ginSignalShadows;
};

struct dyn_nccl_dev_comm_23203 {
  uint32_t magic, version;
  int rank, nRanks;
  uint32_t reserved0;
  int lsaRank, lsaSize;
  uint32_t reserved1;
  uint64_t reserved2[8];
  uint8_t ginConnectionCount, backendIndex;
  uint8_t ginNetDeviceTypes[4]; /* of each connection, all of one backend */
  void *ginHandles[4];
  int ginSignalCount, ginCounterCount; /* of each context, from 0 on */
  uint64_t *ginSignalShadows;
  uint32_t ginContextCount; /* of all connections together */
  int ginConnectionStride, ginContextStride;
  bool ginStrongLegacySignals;
  uint64_t reserved3[10];
};

union dyn_nccl_dev_comm {
  struct dyn_nccl_dev_comm_22809 v22809;
  struct dyn_nccl_dev_comm_23203 v23203;
};

struct dyn_nccl_requirements_22809 { /* ncclDevCommRequirements */
  void *resourceRequirementsList, *teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount, lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
};

struct dyn_nccl_requirements_23203 {
  size_t size;
  unsigned magic, version;
  void *resourceRequirementsList, *teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount, lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount, ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth, ginTrafficClass, worldGinBarrierCount;
  bool ginStrongSignalsRequired, ginVaSignalsRequired;
  int ginCustomStride, ginType;
  bool useRuntimeVersion;
  int cftCaps, cftBarrierCount;
};

struct dyn_nccl_properties_23203 { /* ncclCommProperties */
  size_t size;
  unsigned magic, version;
  uint64_t reserved0[2];
  bool deviceApiSupport, multimemSupport;
  int ginType;
  uint64_t reserved1[4];
  bool ginSupport[64]; /* by ncclGinType_t: a device communicator may ask for it */
  uint64_t reserved2[2];
};

#endif

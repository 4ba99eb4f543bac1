/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host asks of NCCL 2.28.9 for GIN, in plain C: nccl_device.h is C++ for nvcc alone, and these libraries build without
 * NCCL. gin/kernels.cu compares it with NCCL's headers where it is compiled; any other version of the library is refused.
 */
#ifndef DYN_NCCL_GIN_H
#define DYN_NCCL_GIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYN_GIN_NCCL_VERSION 22809

enum { DYN_NCCL_GIN_PROXY = 2, DYN_NCCL_GIN_GDAKI = 3 }; /* NCCL_NET_DEVICE_GIN_* */
enum { DYN_NCCL_WIN_SYMMETRIC = 1 };                     /* NCCL_WIN_COLL_SYMMETRIC */

struct dyn_nccl_id { char internal[128]; }; /* ncclUniqueId: passed by value */

/* ncclDevComm: handed to kernels as it is. */
struct dyn_nccl_dev_comm {
  int rank, nRanks;
  uint32_t reserved0;
  int lsaRank, lsaSize; /* the LSA team is of ranks in a row */
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

struct dyn_nccl_requirements { /* ncclDevCommRequirements */
  void *resourceRequirementsList, *teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount, lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
};

struct dyn_nccl_config { /* ncclConfig_t */
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN by themselves: a fatbin for each version of NCCL that host/nccl_gin.h knows (make -C kernels gin-fatbin),
 * whose device communicator is their first argument. What the host's C knows of that version's structures is compared with
 * NCCL's own headers here.
 */
#include "net.cuh"

#include "kernels.cuh"
#include "../host/nccl_gin.h"

#if NCCL_VERSION_CODE == 22809
using DevComm = dyn_nccl_dev_comm_22809;
using Requirements = dyn_nccl_requirements_22809;
#elif NCCL_VERSION_CODE == 23203
using DevComm = dyn_nccl_dev_comm_23203;
using Requirements = dyn_nccl_requirements_23203;
#else
#error "these kernels are for other versions of NCCL"
#endif

#ifdef DYN_GIN_FOR /* what the file's name says (../Makefile) */
static_assert(NCCL_VERSION_CODE == DYN_GIN_FOR, "the headers are another version's");
#endif

extern "C" __global__ void DYN_GIN_LAYOUT(NCCL_VERSION_CODE)() {}

#define SAME(OURS, THEIRS, FIELD) \
  static_assert(offsetof(OURS, FIELD) == offsetof(THEIRS, FIELD) && sizeof(OURS::FIELD) == sizeof(THEIRS::FIELD), #THEIRS " has another " #FIELD)
static_assert(sizeof(DevComm) == sizeof(ncclDevComm), "ncclDevComm has another size");
SAME(DevComm, ncclDevComm, rank);
SAME(DevComm, ncclDevComm, nRanks);
SAME(DevComm, ncclDevComm, lsaRank);
SAME(DevComm, ncclDevComm, lsaSize);
SAME(DevComm, ncclDevComm, ginContextCount);
SAME(DevComm, ncclDevComm, ginHandles);
SAME(DevComm, ncclDevComm, ginSignalCount);
SAME(DevComm, ncclDevComm, ginCounterCount);
static_assert(sizeof(Requirements) == sizeof(ncclDevCommRequirements), "ncclDevCommRequirements has another size");
SAME(Requirements, ncclDevCommRequirements, ginForceEnable);
SAME(Requirements, ncclDevCommRequirements, ginContextCount);
SAME(Requirements, ncclDevCommRequirements, ginSignalCount);
SAME(Requirements, ncclDevCommRequirements, ginCounterCount);
#if NCCL_VERSION_CODE == 22809
SAME(DevComm, ncclDevComm, ginTypes);
SAME(DevComm, ncclDevComm, ginSignalBase);
SAME(DevComm, ncclDevComm, ginCounterBase);
static_assert(DYN_GIN_MAX_CONTEXTS == NCCL_GIN_MAX_CONTEXTS, "there are other numbers of contexts");
static_assert(sizeof(dyn_nccl_config) == sizeof(ncclConfig_t), "ncclConfig_t has another size");
static_assert(DYN_NCCL_CONFIG_VERSION == NCCL_VERSION_CODE, "the configuration is another version's");
#else
SAME(DevComm, ncclDevComm, magic);
SAME(DevComm, ncclDevComm, version);
SAME(DevComm, ncclDevComm, ginConnectionCount);
SAME(DevComm, ncclDevComm, backendIndex);
SAME(DevComm, ncclDevComm, ginNetDeviceTypes);
SAME(DevComm, ncclDevComm, ginStrongLegacySignals);
SAME(Requirements, ncclDevCommRequirements, size);
SAME(Requirements, ncclDevCommRequirements, magic);
SAME(Requirements, ncclDevCommRequirements, version);
SAME(Requirements, ncclDevCommRequirements, ginConnectionType);
SAME(Requirements, ncclDevCommRequirements, ginQueueDepth);
SAME(Requirements, ncclDevCommRequirements, ginTrafficClass);
SAME(Requirements, ncclDevCommRequirements, ginStrongSignalsRequired);
SAME(Requirements, ncclDevCommRequirements, ginVaSignalsRequired);
SAME(Requirements, ncclDevCommRequirements, ginCustomStride);
SAME(Requirements, ncclDevCommRequirements, ginType);
SAME(Requirements, ncclDevCommRequirements, useRuntimeVersion);
SAME(Requirements, ncclDevCommRequirements, cftCaps);
static_assert(sizeof(dyn_nccl_properties_23203) == sizeof(ncclCommProperties_t), "ncclCommProperties_t has another size");
SAME(dyn_nccl_properties_23203, ncclCommProperties_t, ginType);
SAME(dyn_nccl_properties_23203, ncclCommProperties_t, ginSupport);
static_assert(DYN_NCCL_GIN_ANY == NCCL_GIN_TYPE_NONE && DYN_NCCL_GIN_PROXY == NCCL_GIN_TYPE_PROXY && DYN_NCCL_GIN_GDAKI == NCCL_GIN_TYPE_GDAKI, "ncclGinType_t has other numbers");
static_assert(DYN_NCCL_MAGIC == NCCL_API_MAGIC, "NCCL's magic is another one");
static_assert(DYN_NCCL_GIN_FULL == NCCL_GIN_CONNECTION_FULL, "ncclGinConnectionType_t has other numbers");
#endif
SAME(dyn_nccl_config, ncclConfig_t, blocking);
SAME(dyn_nccl_config, ncclConfig_t, netName);
SAME(dyn_nccl_config, ncclConfig_t, commName);
SAME(dyn_nccl_config, ncclConfig_t, nvlinkCentricSched);
static_assert(sizeof(dyn_nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId has another size");
static_assert(DYN_NCCL_WIN_SYMMETRIC == NCCL_WIN_COLL_SYMMETRIC, "NCCL_WIN_COLL_SYMMETRIC has another number");
static_assert(DYN_NCCL_GIN_PROXY == NCCL_NET_DEVICE_GIN_PROXY && DYN_NCCL_GIN_GDAKI == NCCL_NET_DEVICE_GIN_GDAKI, "types of GIN have other numbers");

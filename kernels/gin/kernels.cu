/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN by themselves: a fatbin (make -C kernels gin-fatbin), for NCCL 2.28.9 alone, whose device communicator is
 * their first argument. What the host's C knows of that version's structures is compared with NCCL's own headers here.
 */
#include "net.cuh"

#include "kernels.cuh"
#include "../host/nccl_gin.h"

#define SAME(OURS, THEIRS, FIELD) \
  static_assert(offsetof(OURS, FIELD) == offsetof(THEIRS, FIELD) && sizeof(OURS::FIELD) == sizeof(THEIRS::FIELD), #THEIRS " has another " #FIELD)
static_assert(NCCL_VERSION_CODE == DYN_GIN_NCCL_VERSION, "these kernels are for another version of NCCL");
static_assert(sizeof(dyn_nccl_dev_comm) == sizeof(ncclDevComm), "ncclDevComm has another size");
SAME(dyn_nccl_dev_comm, ncclDevComm, lsaRank);
SAME(dyn_nccl_dev_comm, ncclDevComm, lsaSize);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginContextCount);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginTypes);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginHandles);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginSignalBase);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginSignalCount);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginCounterBase);
SAME(dyn_nccl_dev_comm, ncclDevComm, ginCounterCount);
static_assert(sizeof(dyn_nccl_requirements) == sizeof(ncclDevCommRequirements), "ncclDevCommRequirements has another size");
SAME(dyn_nccl_requirements, ncclDevCommRequirements, ginForceEnable);
SAME(dyn_nccl_requirements, ncclDevCommRequirements, ginContextCount);
SAME(dyn_nccl_requirements, ncclDevCommRequirements, ginSignalCount);
SAME(dyn_nccl_requirements, ncclDevCommRequirements, ginCounterCount);
static_assert(sizeof(dyn_nccl_config) == sizeof(ncclConfig_t), "ncclConfig_t has another size");
SAME(dyn_nccl_config, ncclConfig_t, blocking);
SAME(dyn_nccl_config, ncclConfig_t, netName);
SAME(dyn_nccl_config, ncclConfig_t, commName);
static_assert(sizeof(dyn_nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId has another size");
static_assert(DYN_NCCL_GIN_PROXY == NCCL_NET_DEVICE_GIN_PROXY && DYN_NCCL_GIN_GDAKI == NCCL_NET_DEVICE_GIN_GDAKI, "types of GIN have other numbers");
static_assert(DYN_GIN_MAX_CONTEXTS == NCCL_GIN_MAX_CONTEXTS, "there are other numbers of contexts");

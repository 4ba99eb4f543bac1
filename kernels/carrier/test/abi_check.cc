/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled against an NCCL source tree (make abi NCCL_TREE=...): do its structs have the layout that nccl_net_abi.h states, or, where
 * NCCL has RMA plugins, nccl_rma_abi.h and nccl_gin_abi.h? The layout lists are taken from there by the Makefile, for these headers
 * and NCCL's cannot be in one file.
 */
#include <cstddef>
#include <cstdint>

#include "nccl.h"
#include "nccl_net.h"
#if __has_include("nccl_gin.h") /* from 2.29 on */
#include "nccl_gin.h"
#endif
#include "nccl_device/gin/proxy/gin_proxy_device_host_common.h"
#include "layout.h"

#define SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type);
#define OFFSET(type, field, bytes) static_assert(offsetof(type, field) == bytes, #type "." #field);
#if NCCL_VERSION_CODE < 23005
DYN_CARRIER_LAYOUT(SIZE, OFFSET)
#else
#include "nccl_rma.h"
#include "rma_layout.h"
DYN_CARRIER_RMA_LAYOUT(SIZE, OFFSET)
#include "gin_layout.h"
DYN_CARRIER_GIN_LAYOUT(SIZE, OFFSET)
static_assert(NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET == 2 && NCCL_NET_ID_UNDEF == -1 && NCCL_NET_MAX_REQUESTS == 32);
#endif
static_assert(NCCL_GIN_PROXY_VERSION == 100 && NCCL_NET_DEVICE_GIN_PROXY == 2 && NCCL_NET_DEVICE_GIN_GDAKI == 3 && NCCL_NET_HANDLE_MAXSIZE == 128);
static_assert(NCCL_NET_SIGNAL_OP_INC == 1 && NCCL_NET_SIGNAL_OP_ADD == 2 && NCCL_NET_MR_FLAG_FORCE_SO == 1);
static_assert(NCCL_PTR_HOST == 1 && NCCL_PTR_CUDA == 2 && ncclRemoteError == 6 && ncclInvalidUsage == 5 && NCCL_LOG_WARN == 2);

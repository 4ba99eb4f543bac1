/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../../kernels/host/host.h"
#include "device.h"
#include "forward.h"

bool dyn_net_apart(void) {
  const char *net = getenv("DYNAMICCL_GIN_NET");
  return net != NULL && *net != '\0';
}

#define NET_NAME_VERSION 21700 /* the first NCCL that has netName */
#define POLICY_VERSION 22700   /* likewise, CTAPolicy */
#define GRAPHS_VERSION 22900   /* likewise, graphUsageMode */
#define CTA_POLICY_ZERO 2      /* NCCL_CTA_POLICY_ZERO: copy engines where there is a way */

/* As far as every NCCL has it that has netName. False: it cannot be read here. */
static bool read_config(const void *config, struct dyn_nccl_config *named) {
  memcpy(named, config, offsetof(struct dyn_nccl_config, blocking));
  if (named->magic != DYN_NCCL_MAGIC || named->size < offsetof(struct dyn_nccl_config, splitShare) || named->version < NET_NAME_VERSION) return false;
  memcpy(named, config, offsetof(struct dyn_nccl_config, splitShare));
  return true;
}

static unsigned network_of(const void *config) {
  struct dyn_nccl_config named = {0};
  if (config == NULL) return DYN_NETWORK_ANY;
  if (!read_config(config, &named)) return DYN_NETWORK_OTHER;
  if (named.netName == NULL) return DYN_NETWORK_ANY;
  return strcasecmp(named.netName, "Socket") == 0 ? DYN_NETWORK_SOCKET : strcasecmp(named.netName, "IB") == 0 ? DYN_NETWORK_IB : DYN_NETWORK_OTHER;
}

/* Those that came later, as NCCL reads them (parseCommConfig, src/init.cc). */
static struct dyn_says says_of(const void *config) {
  struct { struct dyn_nccl_config first; int graphUsageMode; } all = {0};
  _Static_assert(offsetof(__typeof__(all), graphUsageMode) == 80, "behind nvlinkCentricSched, from 2.29 on");
  if (config == NULL || !read_config(config, &all.first)) return (struct dyn_says){0};
  const size_t size = all.first.size < sizeof all ? all.first.size : sizeof all;
  memcpy(&all, config, size);
  const bool hasPolicy = all.first.version >= POLICY_VERSION && size >= offsetof(struct dyn_nccl_config, shrinkShare);
  const bool hasGraphs = all.first.version >= GRAPHS_VERSION && size >= offsetof(__typeof__(all), graphUsageMode) + sizeof all.graphUsageMode;
  return (struct dyn_says){.maxCTAs = all.first.maxCTAs > 0 ? all.first.maxCTAs : 0,
                           .noCTAs = hasPolicy && all.first.CTAPolicy > 0 && all.first.CTAPolicy & CTA_POLICY_ZERO,
                           .graphsAlone = hasGraphs && (all.graphUsageMode == 0 || all.graphUsageMode == 1)};
}

void dyn_net_note(const void *config) {
  atomic_fetch_or(&dynamiccl_preload.networks, network_of(config));
  dyn_making_bounds(says_of(config));
}

/* A program's config may be an older NCCL's, which is shorter, or a newer one's; its version says how NCCL reads it. */
static void *on_net(void *config, struct dyn_nccl_config *copy) {
  if (!dyn_net_apart()) return config;
  *copy = (struct dyn_nccl_config){.size = sizeof *copy, .magic = DYN_NCCL_MAGIC, .version = DYN_NCCL_CONFIG_VERSION, .blocking = INT_MIN, .cgaClusterSize = INT_MIN,
                                   .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN, .trafficClass = INT_MIN, .collnetEnable = INT_MIN,
                                   .CTAPolicy = INT_MIN, .shrinkShare = INT_MIN, .nvlsCTAs = INT_MIN, .nChannelsPerNetPeer = INT_MIN, .nvlinkCentricSched = INT_MIN};
  if (config != NULL) {
    size_t size;
    memcpy(&size, config, sizeof size);
    if (size < offsetof(struct dyn_nccl_config, splitShare) || size > sizeof *copy) return config;
    memcpy(copy, config, size);
  }
  if (copy->magic != DYN_NCCL_MAGIC || copy->netName != NULL) return config == NULL ? copy : config;
  copy->netName = "Socket";
  return copy;
}

void *dyn_net_config(void *config, struct dyn_nccl_config *copy) {
  void *given = on_net(config, copy);
  dyn_net_note(given);
  return given;
}

/* One process is one node, which needs no network: NCCL makes them whatever it finds, and nothing of theirs goes over it. */
void dyn_net_none(const char *call) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (dyn_net_apart() && !atomic_flag_test_and_set(&said))
    dyn_host_say("%s names no network: its communicators have the first that NCCL finds, which they do not need on one host, and no kernels over GIN "
                 "(DYNAMICCL_GIN_NET is for ncclCommInitRank and the like)", call);
}

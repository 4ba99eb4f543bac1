/* SPDX-License-Identifier: Apache-2.0
 *
 * What connects the ranks of a communicator, as this rank can prove it when NCCL has made it (docs/design.md, decision 32).
 * Whatever is not certain is DYN_TRANSPORT_UNKNOWN. Nothing here is on the hot path.
 */
#ifndef DYN_TRANSPORT_H
#define DYN_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi.h"

struct dyn_transport {
  uint32_t kind; /* DYN_TRANSPORT_* */
  uint32_t nics; /* a node; 0: none, or not known */
};

/* Where it is looked: tests have a machine of their own. */
struct dyn_machine {
  const char *root;                    /* of the file system: "" */
  void *(*library)(const char *name);  /* a library that this process has loaded, NULL: it has not */
  void *(*symbol)(void *library, const char *name);
  void (*release)(void *library);
  _Atomic uint64_t *links; /* what NVML said once, for it takes milliseconds and does not change; NULL: asked each time */
};
extern const struct dyn_machine dyn_this_machine;

/* networks: DYN_NETWORK_* (preload/preload.h), what configs of this process's communicators have named; 0: not known. */
struct dyn_transport dyn_transport_find(const struct dyn_machine *machine, uint32_t nRanks, uint32_t nNodes, unsigned networks);

/* Some GPUs of this host are known not to be joined by NVLink. False also where nobody knows. */
bool dyn_transport_apart(const struct dyn_machine *machine);
/* NVML sees fewer GPUs than so many ranks have: others are of hosts that share its NVLink, or out of sight. */
bool dyn_transport_beyond(const struct dyn_machine *machine, uint32_t nRanks);

/* Of one node: transport_node.c. Of several: transport_net.c. */
uint32_t dyn_transport_node(const struct dyn_machine *machine, uint32_t nRanks);
struct dyn_transport dyn_transport_net(const struct dyn_machine *machine, unsigned networks);

/* Whether NCCL has a plugin of one kind, or may have: the variable names one, or what it takes without a name is loaded. */
bool dyn_machine_plugin(const struct dyn_machine *machine, const char *variable, const char *library);

#endif

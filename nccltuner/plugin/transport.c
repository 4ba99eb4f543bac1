/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *loaded(const char *name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }
static void *symbol(void *library, const char *name) { return dlsym(library, name); } /* glibc's may come later (glibc.h) */
static void release(void *library) { dlclose(library); }

static _Atomic uint64_t links;
const struct dyn_machine dyn_this_machine = {"", loaded, symbol, release, &links};

static bool has(const struct dyn_machine *machine, const char *name) {
  void *library = machine->library(name);
  if (library) machine->release(library);
  return library != NULL;
}

bool dyn_machine_plugin(const struct dyn_machine *machine, const char *variable, const char *library) {
  const char *plugin = getenv(variable);
  return (plugin && *plugin && strcasecmp(plugin, "none") != 0) || has(machine, library);
}

/* NCCL 2.28 and later may ask a plugin for its variables (src/plugin/env.cc): then the environment is not what NCCL sees. Its
 * configuration files are: NCCL puts them into the environment. */
static bool hidden_variables(const struct dyn_machine *machine) {
  return dyn_machine_plugin(machine, "NCCL_ENV_PLUGIN", "libnccl-env.so");
}

struct dyn_transport dyn_transport_find(const struct dyn_machine *machine, uint32_t nRanks, uint32_t nNodes, unsigned networks) {
  if (nRanks < 2 || hidden_variables(machine)) return (struct dyn_transport){DYN_TRANSPORT_UNKNOWN, 0};
  if (nNodes > 1) return dyn_transport_net(machine, networks);
  return (struct dyn_transport){dyn_transport_node(machine, nRanks), 0};
}

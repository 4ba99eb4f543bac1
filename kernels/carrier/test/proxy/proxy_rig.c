/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the rig NCCL's own sources need, whose headers cannot stand beside ours.
 */
#include <dlfcn.h>

#include "../../expected.h"
#include "../rig.h"

#include "proxy_rig.h"

int proxy_rank(void) { return rank; }
int proxy_ranks(void) { return numRanks; }
void proxy_meet(void) { meet(); }
void proxy_play(int ranks, int dies, void (*story)(void)) { play("proxy", ranks, dies, story); }

void proxy_gather(void *all, size_t bytes) {
  unsigned char *at = all;
  CHECK(bytes <= NCCL_NET_HANDLE_MAXSIZE);
  memcpy(shared->handles[rank], at + (size_t)rank * bytes, bytes);
  meet();
  for (int r = 0; r < numRanks; r++) memcpy(at + (size_t)r * bytes, shared->handles[r], bytes);
  meet();
}
void *proxy_memory(size_t bytes, int handles) { return device_memory(bytes, handles); }
void *proxy_gin(void) { return gin; }

void *proxy_connect(void) {
  if (comm.ginInstance == NULL) initialise();
  return connect_one(comm.ginInstance, comm.ginContext);
}

void proxy_disconnect(void *coll) { CHECK(gin->closeColl(coll) == 0); }
void proxy_end(void) { CHECK(gin->finalize(comm.ginInstance) == 0 && gin->finalize(comm.ginContext) == 0); }

void proxy_known(const void *handle) {
  char kernel[4096];
  struct dyn_carrier_expected expected;
  const char *path = getenv("CARRIER"), *slash = strrchr(path, '/');
  void *carrier = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  dyn_carrier_expected_of *expected_of = carrier == NULL ? NULL : (dyn_carrier_expected_of *)dlsym(carrier, DYN_CARRIER_EXPECTED);
  snprintf(kernel, sizeof kernel, "%.*sdynamiccl-carrier.fatbin", slash == NULL ? 0 : (int)(slash - path) + 1, path);
  CHECK(expected_of != NULL && expected_of(handle, &expected) == (access(kernel, R_OK) == 0));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the rig NCCL's own sources need, whose headers cannot stand beside ours.
 */
#include "../rig.h"

#include "proxy_rig.h"

int proxy_rank(void) { return rank; }
int proxy_ranks(void) { return numRanks; }
void proxy_meet(void) { meet(); }
void proxy_play(int ranks, void (*story)(void)) { play("proxy", ranks, -1, story); }
void *proxy_memory(size_t bytes, int handles) { return device_memory(bytes, handles); }
void *proxy_gin(void) { return gin; }

void *proxy_connect(void) {
  void *handles[MAX_RANKS], *listener, *coll;
  if (comm.ginInstance == NULL) initialise();
  CHECK(gin->listen(comm.ginInstance, 0, shared->handles[rank], &listener) == 0);
  meet();
  for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
  CHECK(gin->connect(comm.ginContext, handles, numRanks, rank, listener, &coll) == 0 && gin->closeListen(listener) == 0);
  meet();
  return coll;
}

void proxy_disconnect(void *coll) { CHECK(gin->closeColl(coll) == 0); }
void proxy_end(void) { CHECK(gin->finalize(comm.ginInstance) == 0 && gin->finalize(comm.ginContext) == 0); }

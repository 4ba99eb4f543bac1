/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that put are told of to who carries what they put, where that is the carrier (carrier/expected.h). A NIC needs nobody to tell it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gin_life.h"
#include "readable.h"

#define CARRIER "libnccl-net-dynamiccl-carrier.so"
#define RISE_NS UINT64_C(2000000000) /* its thread may be kept away by who has CUDA's lock, and so may whom this one keeps waiting */
#define KEPT_NS UINT64_C(100000000) /* well below the 0.3 s that cards stay behind a put with nobody to launch others */

static int is_carrier(struct dl_phdr_info *library, size_t bytes, void *path) {
  const char *slash = strrchr(library->dlpi_name, '/');
  (void)bytes;
  return strcmp(slash == NULL ? library->dlpi_name : slash + 1, CARRIER) == 0 && snprintf(path, PATH_MAX, "%s", library->dlpi_name) < PATH_MAX;
}

/* NCCL has loaded it, and keeps it as long as it has the device communicator. */
static dyn_carrier_expected_of *asks(void) {
  char path[PATH_MAX];
  void *library = dl_iterate_phdr(is_carrier, path) == 0 ? NULL : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return NULL;
  dyn_carrier_expected_of *function = (dyn_carrier_expected_of *)dlsym(library, DYN_CARRIER_EXPECTED);
  dlclose(library);
  return function;
}

void dyn_gin_expect(struct dyn_gin_life *life, int version) {
  dyn_carrier_expected_of *expected_of = asks();
  if (expected_of == NULL || !expected_of(dyn_gin_handle(version, &life->device), &life->expected)) return;
  life->lanes[LANE_CALLS].ended = life->expected.ended;
  life->lanes[LANE_GRAPHS].ended = life->expected.replayed;
}

void dyn_gin_captured(const struct dyn_carrier_expected *expected, enum dyn_expected_graphs graphs) {
  if (expected->captured != NULL && dyn_readable(expected->captured)) __atomic_store_n(expected->captured, graphs, __ATOMIC_SEQ_CST);
}

/* A graph is counted before the carrier is told that there is one (launch.c), so of it and what is told here the later sees the other. */
void dyn_gin_look_captured(const struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++) {
    const struct dyn_carrier_expected *expected = &gin->each[i].expected;
    if (!dyn_gin_usable(&gin->each[i].state) || expected->captured == NULL || atomic_load(&lsa->scratch->graphs) != 0) continue;
    if (!dyn_readable(expected->captured) || __atomic_load_n(expected->captured, __ATOMIC_SEQ_CST) == DYN_EXPECTED_NO_GRAPHS) continue;
    dyn_gin_captured(expected, DYN_EXPECTED_NO_GRAPHS);
    if (atomic_load(&lsa->scratch->graphs) != 0) dyn_gin_captured(expected, DYN_EXPECTED_GRAPHS);
  }
}

/* Whose kernels have given up, in all lanes, puts nothing more; what graphs are left may, until they are gone (room.c). */
void dyn_gin_left(const struct dyn_lsa *lsa, const struct dyn_gin_life *life) {
  if (life->expected.captured == NULL || !dyn_words_there(lsa)) return;
  if (dyn_gin_usable(&life->state)) lsa->scratch->left = life->expected.captured;
  dyn_gin_captured(&life->expected, dyn_lsa_stopped(lsa) ? DYN_EXPECTED_NOTHING : DYN_EXPECTED_NO_GRAPHS);
}

/* Not for a kernel that will give up: another thread that aborts the communicator takes it away soon. */
static void ask(const struct dyn_gin_life *life) {
  const struct dyn_carrier_expected *expected = &life->expected;
  const uint32_t *stop = life->lanes[LANE_CALLS].stop;
  __atomic_fetch_add(expected->asked, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(expected->lapsed, __ATOMIC_SEQ_CST) == 0) return;
  for (uint64_t until = dyn_host_ns() + (life->riseNs > RISE_NS ? life->riseNs : RISE_NS); __atomic_load_n(expected->lapsed, __ATOMIC_ACQUIRE) != 0 && __atomic_load_n(stop, __ATOMIC_ACQUIRE) == 0 && dyn_host_ns() < until;)
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

uint64_t dyn_gin_announce(const struct dyn_gin_life *life) {
  if (life->expected.asked == NULL || !dyn_readable(life->expected.asked)) return 0;
  ask(life);
  return dyn_host_ns();
}

static bool tells(const struct dyn_gin_life *life) { return life->expected.lapsed != NULL && dyn_readable(life->expected.lapsed); }

bool dyn_gin_lapsed(const struct dyn_gin_life *life) { return tells(life) && __atomic_load_n(life->expected.lapsed, __ATOMIC_SEQ_CST) != 0; }

void dyn_gin_tell_card(const struct dyn_gin_life *life, char *why, size_t room) {
  if (!tells(life)) return;
  const size_t end = strlen(why);
  snprintf(why + end, room - end, " (over %s, whose card is %son the GPU)", dyn_gin_backend_name(life->state.backend), dyn_gin_lapsed(life) ? "not " : "");
}

/* A launch may be kept, by a full queue or by who has CUDA's lock, for longer than the carrier stays for a kernel that is only coming. */
void dyn_gin_launched(const struct dyn_gin_life *life, uint64_t announcedNs) {
  if (announcedNs == 0 || !dyn_readable(life->expected.launched)) return;
  __atomic_fetch_add(life->expected.launched, 1, __ATOMIC_SEQ_CST);
  if (dyn_host_ns() - announcedNs > KEPT_NS) ask(life);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of GIN on one communicator, by one backend. Every step but the last is made by all ranks, in one order.
 *
 *   uninitialised --> wanted --> initialising --> granted --> active --> in flight <--> complete
 *         |             |              |             |          |            |             |
 *         +-> refused <-+              +-------------+--> failed <-----------+-------------+
 *                                                               |                          |
 *                                                               +------> destroyed <-------+
 *
 * wanted: this rank can. It begins where all ranks of the communicator say so, and that they decide in one word of the record.
 *   A second backend begins where the first one has come to its end, active or failed.
 * initialising: NCCL makes a communicator of the same ranks, and a device communicator on it.
 * granted: what NCCL gave was read back: GDAKI or Proxy, contexts, depth of queues, signals, counters. That it works nobody knows yet: windows
 *   are made, and the probe is the only kernel that may run.
 * active: every signal and counter of the probe has come, on every context, with its data. From here on ranks mark the sizes
 *   that they can run; plans have GIN in them where all ranks did.
 * in flight, complete: calls run, or all are over, which is known when somebody looks.
 * failed: a call of NCCL's did not succeed, a peer was waited for in vain, or somebody stopped it. Memory stays as it is: puts
 *   may be on their way.
 */
#include "gin_state.h"

#include <stddef.h>

#define TO(state) (1u << DYN_GIN_##state)

static const uint32_t moves[DYN_NUM_GIN_STATES] = {
    [DYN_GIN_UNINITIALISED] = TO(WANTED) | TO(REFUSED),
    [DYN_GIN_WANTED] = TO(INITIALISING) | TO(REFUSED),
    [DYN_GIN_INITIALISING] = TO(GRANTED) | TO(FAILED),
    [DYN_GIN_GRANTED] = TO(ACTIVE) | TO(FAILED),
    [DYN_GIN_ACTIVE] = TO(IN_FLIGHT) | TO(DESTROYED) | TO(FAILED),
    [DYN_GIN_IN_FLIGHT] = TO(IN_FLIGHT) | TO(COMPLETE) | TO(FAILED),
    [DYN_GIN_COMPLETE] = TO(IN_FLIGHT) | TO(COMPLETE) | TO(DESTROYED) | TO(FAILED),
    /* refused, destroyed and failed are ends */
};

static bool granted(uint32_t state) { return state >= DYN_GIN_GRANTED && state < DYN_GIN_FAILED; }

/* As in abi.h. */
static uint32_t depth_code(uint32_t depth) { return depth == 0 ? 0 : (uint32_t)__builtin_ctz(depth) + 1; }

/* had: something was granted. Two threads may move, and each tells what holds when it has told. */
static void tell(struct dyn_gin_state *state, bool had) {
  uint32_t now = atomic_load(&state->now), told;
  do {
    uint32_t word = had || granted(now) ? now | state->backend << 8 | state->contexts << 16 | depth_code(state->depth) << 24 : now;
    __atomic_store_n(state->told, word, __ATOMIC_SEQ_CST);
    told = now;
  } while ((now = atomic_load(&state->now)) != told);
}

bool dyn_gin_move(struct dyn_gin_state *state, uint32_t to) {
  uint32_t from = atomic_load(&state->now);
  do {
    if (from >= DYN_NUM_GIN_STATES || to >= DYN_NUM_GIN_STATES || !(moves[from] >> to & 1)) return false;
  } while (!atomic_compare_exchange_weak(&state->now, &from, to));
  if (state->told != NULL && from != to) tell(state, granted(from));
  return true;
}

bool dyn_gin_usable(const struct dyn_gin_state *state) {
  uint32_t now = atomic_load_explicit(&state->now, memory_order_acquire);
  return now == DYN_GIN_ACTIVE || now == DYN_GIN_IN_FLIGHT || now == DYN_GIN_COMPLETE;
}

const char *dyn_gin_state_name(uint32_t state) {
  static const char *const names[DYN_NUM_GIN_STATES] = {"uninitialised", "refused", "wanted", "initialising", "granted",
                                                        "active", "in flight", "complete", "destroyed", "failed"};
  return state < DYN_NUM_GIN_STATES ? names[state] : "unknown";
}

const char *dyn_gin_backend_name(uint32_t backend) {
  return backend == DYN_BACKEND_GDAKI ? "GDAKI" : backend == DYN_BACKEND_PROXY ? "Proxy" : "unknown";
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals on their way: a ring in shared memory for each source, which its proxy thread fills and the target's empties. All
 * rings to one target are its board, in a file without a name whose descriptor the peers got when they connected.
 */
#ifndef DYN_CARRIER_RING_H
#define DYN_CARRIER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_MESSAGES = 1024 };

struct ring_message {
  uint64_t offset; /* into the region */
  uint64_t value;  /* to add */
  uint32_t region; /* its number */
  uint32_t unused;
};

struct ring {
  _Alignas(64) atomic_uint_fast64_t sent;
  _Alignas(64) atomic_uint_fast64_t taken;
  _Alignas(64) struct ring_message messages[RING_MESSAGES];
};

struct board {
  _Alignas(64) atomic_int closed; /* its rank left and did not die */
  uint32_t nRanks;
  struct ring rings[]; /* of each source */
};

static inline size_t board_bytes(int nRanks) { return sizeof(struct board) + (size_t)nRanks * sizeof(struct ring); }

/* NULL: no memory. *fd names it for peers. */
struct board *board_make(int nRanks, int *fd);
/* A peer's; NULL: it is none, or none for so many ranks. The descriptor is not kept. */
struct board *board_open(int fd, int nRanks);
void board_close(struct board *board, int nRanks);

/* False: full. */
static inline bool ring_send(struct ring *ring, const struct ring_message *message) {
  uint64_t sent = atomic_load_explicit(&ring->sent, memory_order_relaxed);
  if (sent - atomic_load_explicit(&ring->taken, memory_order_acquire) >= RING_MESSAGES) return false;
  ring->messages[sent % RING_MESSAGES] = *message;
  atomic_store_explicit(&ring->sent, sent + 1, memory_order_release);
  return true;
}

static inline bool ring_waits(const struct ring *ring) {
  return atomic_load_explicit(&ring->taken, memory_order_relaxed) != atomic_load_explicit(&ring->sent, memory_order_relaxed);
}

/* False: empty. What the source saw before it sent is seen. */
static inline bool ring_take(struct ring *ring, struct ring_message *message) {
  uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
  if (taken == atomic_load_explicit(&ring->sent, memory_order_acquire)) return false;
  *message = ring->messages[taken % RING_MESSAGES];
  atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
  return true;
}

#endif

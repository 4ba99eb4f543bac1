/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts and signals, in NCCL's GIN proxy thread. Requests to one peer are a list and are done from its head only.
 *
 * NCCL 2.28.9 throws away what test and ginProgress return and hears an error from a put alone. So a request that never
 * reaches its peer is an error and done: its source may be used again, which is all that a flush or a counter says, and no
 * kernel spins for it for ever. What CUDA refused, no later put hides: all of them fail from then on.
 */
#include <stdlib.h>

#include "carrier.h"
#include "say.h"

#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0 /* what tests plant. 1: a signal that does not wait for its copy. 2: messages out of order */
#endif

static struct ring *ring_to(struct carrier *c, const struct carrier_peer *peer) { return &peer->board->rings[c->rank]; }

/* 1: the copy is over, 0: not yet. */
static int copied(struct carrier *c, struct carrier_request *request) {
  if (request->move == NULL) return 1;
  int state = mover_done(c->mover, request->move);
  if (state == 0) return 0;
  request->move = NULL;
  if (state < 0) c->failed = request->result = ncclUnhandledCudaError;
  return 1;
}

/* False: it is still under way. */
static bool finish(struct carrier *c, struct carrier_peer *peer, struct carrier_request *request) {
  if (request->never && !peer->gone) return false;
#if CARRIER_MISTAKE == 1
  if (!peer->gone && request->signals && request->move != NULL && ring_send(ring_to(c, peer), &request->message)) request->signals = false;
#endif
  if (!copied(c, request)) return false;
  if (peer->gone) {
    request->result = carrier_is_gone(c, peer);
    return true;
  }
  if (request->dueNs != 0 && carrier_now_ns() < request->dueNs) return false;
  return request->result != 0 || !request->signals || ring_send(ring_to(c, peer), &request->message);
}

static void advance(struct carrier *c, struct carrier_peer *peer) {
  for (struct carrier_request *request; (request = peer->first) != NULL;) {
#if CARRIER_MISTAKE == 2
    if (request->next != NULL && request->next->signals && request->next->move == NULL && request->next->dueNs == 0 &&
        ring_send(ring_to(c, peer), &request->next->message))
      request->next->signals = false;
#endif
    if (!finish(c, peer, request)) return;
    peer->first = request->next;
    if (peer->first == NULL) peer->last = NULL;
    request->next = NULL;
    request->done = true;
  }
}

static bool lies_in(const struct carrier_region *region, int rank, uint64_t offset, uint64_t bytes) {
  return offset <= region->parts[rank].bytes && region->parts[rank].bytes - offset >= bytes;
}

static int refuse(struct carrier *c, uint32_t rank, const char *why) {
  carrier_warn("a put of rank %d to rank %u: %s", c->rank, rank, why);
  return ncclInvalidArgument;
}

int carrier_put(struct carrier *c, const struct carrier_region *src, uint64_t srcOff, size_t bytes, const struct carrier_region *dst,
                uint64_t dstOff, uint32_t rank, const struct ring_message *signal, struct carrier_request **out) {
  if (rank >= (uint32_t)c->nRanks) return refuse(c, rank, "there is no such rank");
  struct carrier_peer *peer = &c->peers[rank];
  struct carrier_faults *faults = &c->instance->faults;
  bool copies = bytes > 0 && dst != NULL;
  if (copies && (src == NULL || !lies_in(src, c->rank, srcOff, bytes) || !lies_in(dst, (int)rank, dstOff, bytes)))
    return refuse(c, rank, "it is not within the memory that was registered");
  if (copies && dst->parts[rank].at == 0) return refuse(c, rank, "nobody else can write into that memory");
  carrier_watch(c);
  if (c->failed) return c->failed;
  if (peer->gone) return carrier_is_gone(c, peer);
  struct carrier_request *request = calloc(1, sizeof *request);
  if (request == NULL) return ncclSystemError;
  request->peer = peer;
  request->signals = signal != NULL;
  if (signal != NULL) request->message = *signal;
  request->never = faults->deadRank == (int)rank || faults->deadRank == c->rank;
  if (!request->never) request->dueNs = carrier_due_ns(faults, copies ? bytes : 0);
  if (copies && !request->never) {
    request->move = mover_put(c->mover, dst->parts[rank].at + dstOff, src->data + srcOff, bytes, src->type == NCCL_PTR_HOST);
    if (request->move == NULL) {
      free(request);
      return ncclUnhandledCudaError;
    }
  }
  if (peer->last == NULL) peer->first = request;
  else peer->last->next = request;
  peer->last = request;
  *out = request;
  return ncclSuccess;
}

int carrier_test(struct carrier *c, struct carrier_request *request, int *done) {
  *done = 0;
  if (!request->done) advance(c, request->peer);
  if (!request->done) return ncclSuccess;
  int result = request->result;
  *done = 1;
  free(request);
  return result;
}

static int apply(struct carrier *c, const struct ring_message *message) {
  struct carrier_region *region = atomic_load(&c->regions[message->region % CARRIER_MAX_REGIONS]);
  if (region == NULL || region->number != message->region || !lies_in(region, c->rank, message->offset, sizeof(uint64_t))) {
    carrier_warn("a signal for memory that is not registered (any more)");
    return ncclInternalError;
  }
  return mover_add(c->mover, region->data + message->offset, message->value) ? ncclSuccess : ncclUnhandledCudaError;
}

int carrier_progress(struct carrier *c) {
  struct ring_message message;
  carrier_watch(c);
  for (int r = 0; r < c->nRanks; r++) {
    advance(c, &c->peers[r]);
    while (ring_take(&c->board->rings[r], &message))
      if (!c->failed) c->failed = apply(c, &message);
  }
  return c->failed;
}

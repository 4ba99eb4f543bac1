/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts, gets and signals, in a thread of NCCL's. Requests of one lane to one peer are a list and are done from its head only.
 *
 * NCCL 2.28.9 throws away what test and ginProgress return and hears an error from a put alone. So a request that never
 * reaches its peer is an error and done: its source may be used again, which is all that a flush or a counter says, and no
 * kernel spins for it for ever. NCCL 2.30 ends its thread with the first error. What CUDA refused, no later put hides: all of
 * them fail from then on.
 *
 * Whatever begins a copy or an addition does so under the carrier's lock, where it sees that its memory is still there.
 */
#include <stdlib.h>
#include <time.h>

#include "carrier.h"
#include "nic/feed.h"
#include "say.h"

/* What tests plant. 1: a signal that does not wait for its copy. 2: messages out of order. 3: a get that does not wait for its.
 * 7: memory that goes while it is copied to. 8: copies that begin when it has gone. 9: additions, too. */
#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0
#endif

static struct ring *ring_to(struct carrier *c, const struct carrier_peer *peer) { return &peer->board->rings[c->rank]; }

static void hold(struct carrier *c) { pthread_mutex_lock(&c->lock); }
static void let(struct carrier *c) { pthread_mutex_unlock(&c->lock); }

/* 1: the copy is over, 0: not yet. */
static int copied(struct carrier_request *request) {
  if (request->move == NULL) return 1;
  int state = mover_done(request->lane->mover, request->move);
  if (state == 0) return 0;
  request->move = NULL;
  if (state < 0) request->lane->c->failed = request->result = ncclUnhandledCudaError;
  return 1;
}

static bool plays_dead(const struct carrier *c, const struct carrier_peer *peer) {
  const int dead = c->instance->faults.deadRank;
  return dead >= 0 && (dead == peer->rank || dead == c->rank);
}

static uint64_t due_ns(struct carrier_instance *instance, size_t bytes) {
  pthread_mutex_lock(&instance->lock);
  uint64_t due = carrier_due_ns(&instance->faults, bytes);
  pthread_mutex_unlock(&instance->lock);
  return due;
}

static bool has_room(const struct carrier_request *request) {
  return request->copy.bytes == 0 || mover_has_room(request->lane->mover, request->copy.bytes, request->copy.host);
}

/* There is room. False: CUDA refuses. */
static bool begin_copy(struct carrier_request *request) {
  const struct carrier_copy *copy = &request->copy;
  request->begun = true;
  request->from = request->to = NULL;
  if (!copy->local) request->dueNs = due_ns(request->lane->c->instance, copy->bytes);
  if (copy->bytes > 0) request->move = mover_put(request->lane->mover, copy->to, copy->from, copy->bytes, copy->host);
  return copy->bytes == 0 || request->move != NULL;
}

/* False: it is still under way. */
static bool finish(struct carrier_request *request) {
  struct carrier *c = request->lane->c;
  struct carrier_peer *peer = request->peer;
  if (!peer->gone && plays_dead(c, peer)) return false;
  if (!peer->gone && !request->begun) {
    if (!has_room(request)) return false;
    if (!begin_copy(request)) c->failed = request->result = ncclUnhandledCudaError;
  }
#if CARRIER_MISTAKE == 1
  if (!peer->gone && request->signals && request->move != NULL && ring_send(ring_to(c, peer), &request->message)) request->signals = false;
#elif CARRIER_MISTAKE == 3
  if (request->gets) return true;
#endif
  if (!copied(request)) return false;
  if (peer->gone) {
    request->result = carrier_is_gone(c, peer);
    return true;
  }
  if (request->dueNs != 0 && carrier_now_ns() < request->dueNs) return false;
  return request->result != 0 || !request->signals || ring_send(ring_to(c, peer), &request->message);
}

static void advance(struct carrier_queue *queue) {
  for (struct carrier_request *request; (request = queue->first) != NULL;) {
#if CARRIER_MISTAKE == 2
    if (request->next != NULL && request->next->signals && request->next->move == NULL && request->next->dueNs == 0 &&
        ring_send(ring_to(request->lane->c, request->peer), &request->next->message))
      request->next->signals = false;
#endif
    if (!finish(request)) return;
    queue->first = request->next;
    if (queue->first == NULL) queue->last = NULL;
    request->next = NULL;
    request->done = true;
  }
}

static bool lies_in(const struct carrier_region *region, int rank, uint64_t offset, uint64_t bytes) {
  return offset <= region->parts[rank].bytes && region->parts[rank].bytes - offset >= bytes;
}

static int refuse(const struct carrier *c, const char *what, uint32_t rank, const char *why) {
  carrier_warn("%s of rank %d, peer %u: %s", what, c->rank, rank, why);
  return ncclInvalidArgument;
}

/* Under the lock. */
static int begin(struct carrier_lane *lane, uint32_t rank, struct carrier_request model, struct carrier_request **out) {
  struct carrier *c = lane->c;
  struct carrier_peer *peer = &c->peers[rank];
  struct carrier_queue *queue = &lane->queues[rank];
  carrier_watch(c);
  if (c->failed) return c->failed;
  if (peer->gone) return carrier_is_gone(c, peer);
  struct carrier_request *request = malloc(sizeof *request);
  if (request == NULL) return ncclSystemError;
  *request = model;
  request->lane = lane;
  request->peer = peer;
  const bool first = queue->last == NULL || queue->last->begun; /* a get is to see what was put before it */
  if (first && !plays_dead(c, peer) && has_room(request) && !begin_copy(request)) {
    free(request);
    return ncclUnhandledCudaError;
  }
  if (queue->last == NULL) queue->first = request;
  else queue->last->next = request;
  queue->last = request;
  *out = request;
  return ncclSuccess;
}

static bool is_gone(const struct carrier_region *region) { return region != NULL && atomic_load(&region->gone); }
static const char gone[] = "that memory is not registered any more";

static int put(struct carrier_lane *lane, const struct carrier_region *src, uint64_t srcOff, size_t bytes, const struct carrier_region *dst,
               uint64_t dstOff, uint32_t rank, const struct ring_message *signal, struct carrier_request **out) {
  const struct carrier *c = lane->c;
  struct carrier_request model = {.signals = signal != NULL};
  if (rank >= (uint32_t)c->nRanks) return refuse(c, "a put", rank, "there is no such rank");
  if (is_gone(src) || is_gone(dst)) return refuse(c, "a put", rank, gone);
  if (bytes > 0 && dst != NULL) {
    if (src == NULL || !lies_in(src, c->rank, srcOff, bytes) || !lies_in(dst, (int)rank, dstOff, bytes))
      return refuse(c, "a put", rank, "it is not within the memory that was registered");
    if (dst->parts[rank].at == 0) return refuse(c, "a put", rank, "nobody else can write into that memory");
    if (c->feed != NULL && src->type == NCCL_PTR_HOST && bytes > NIC_FEED_MOST) return refuse(c, "a put", rank, "it is more host memory at once than the carrier takes");
    model.copy = (struct carrier_copy){dst->parts[rank].at + dstOff, src->data + srcOff, bytes, src->type == NCCL_PTR_HOST, false};
    model.from = src, model.to = dst;
  }
  if (signal != NULL) model.message = *signal;
  return begin(lane, rank, model, out);
}

int carrier_put(struct carrier_lane *lane, const struct carrier_region *src, uint64_t srcOff, size_t bytes, const struct carrier_region *dst,
                uint64_t dstOff, uint32_t rank, const struct ring_message *signal, struct carrier_request **out) {
  hold(lane->c);
  int result = put(lane, src, srcOff, bytes, dst, dstOff, rank, signal, out);
  let(lane->c);
  return result;
}

static int get(struct carrier_lane *lane, const struct carrier_region *remote, uint64_t remoteOff, size_t bytes, const struct carrier_region *local,
               uint64_t localOff, uint32_t rank, struct carrier_request **out) {
  const struct carrier *c = lane->c;
  if (rank >= (uint32_t)c->nRanks) return refuse(c, "a get", rank, "there is no such rank");
  if (is_gone(remote) || is_gone(local)) return refuse(c, "a get", rank, gone);
  if (remote == NULL || local == NULL || !lies_in(remote, (int)rank, remoteOff, bytes) || !lies_in(local, c->rank, localOff, bytes))
    return refuse(c, "a get", rank, "it is not within the memory that was registered");
  if (remote->parts[rank].at == 0) return refuse(c, "a get", rank, "nobody else can read that memory");
  if (local->type == NCCL_PTR_HOST) return refuse(c, "a get", rank, "into host memory the carrier gets nothing");
  const struct carrier_copy copy = {local->data + localOff, remote->parts[rank].at + remoteOff, bytes, false, false};
  return begin(lane, rank, (struct carrier_request){.copy = copy, .gets = true, .from = remote, .to = local}, out);
}

int carrier_get(struct carrier_lane *lane, const struct carrier_region *remote, uint64_t remoteOff, size_t bytes,
                const struct carrier_region *local, uint64_t localOff, uint32_t rank, struct carrier_request **out) {
  hold(lane->c);
  int result = get(lane, remote, remoteOff, bytes, local, localOff, rank, out);
  let(lane->c);
  return result;
}

int carrier_flush(struct carrier_lane *lane, uint32_t rank, struct carrier_request **out) {
  if (rank >= (uint32_t)lane->c->nRanks) return refuse(lane->c, "a flush", rank, "there is no such rank");
  hold(lane->c);
  int result = begin(lane, rank, (struct carrier_request){.copy = {.local = true}}, out);
  let(lane->c);
  return result;
}

int carrier_test(struct carrier_request *request, int *done) {
  *done = 0;
  if (!request->done) {
    hold(request->lane->c);
    advance(&request->lane->queues[request->peer->rank]);
    let(request->lane->c);
  }
  if (!request->done) return ncclSuccess;
  int result = request->result;
  *done = 1;
  free(request);
  return result;
}

void carrier_advance(struct carrier_lane *lane) {
  hold(lane->c);
  for (int r = 0; r < lane->c->nRanks; r++) advance(&lane->queues[r]);
  let(lane->c);
}

/* ---- memory that goes ---- */

/* NCCL's thread may have CUDA in its hands, and CUDA may wait for a kernel. */
static bool hold_by(struct carrier *c, uint64_t deadlineNs) {
  while (pthread_mutex_trylock(&c->lock) != 0) {
    if (carrier_now_ns() > deadlineNs) return false;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  return true;
}

/* Who waits for it hears that it failed; there is nothing left to copy or to signal. */
static void fail(struct carrier_request *request) {
  request->result = ncclInvalidUsage;
  request->copy.bytes = 0;
  request->signals = false;
  request->from = request->to = NULL;
}

bool carrier_forget(struct carrier *c, const struct carrier_region *region, uint64_t deadlineNs) {
  if (!hold_by(c, deadlineNs)) return false;
  for (struct carrier_lane *lane = c->lanes; lane != NULL; lane = lane->next)
    for (int r = 0; r < c->nRanks; r++)
      for (struct carrier_request *request = lane->queues[r].first; request != NULL && CARRIER_MISTAKE != 8; request = request->next)
        if (request->from == region || request->to == region) fail(request);
  let(c);
  bool over = CARRIER_MISTAKE == 7 || c->adder == NULL || mover_settle(c->adder, deadlineNs);
  for (struct carrier_lane *lane = c->lanes; lane != NULL && over && CARRIER_MISTAKE != 7; lane = lane->next) over = mover_settle(lane->mover, deadlineNs);
  return over;
}

static int apply(struct carrier *c, const struct ring_message *message) {
  struct carrier_region *region = atomic_load(&c->regions[message->region % CARRIER_MAX_REGIONS]);
  if (region == NULL || region->number != message->region || !lies_in(region, c->rank, message->offset, sizeof(uint64_t))) {
    carrier_warn("a signal for memory that is not registered (any more)");
    return ncclInternalError;
  }
  if (CARRIER_MISTAKE == 9) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  return mover_add(c->adder, region->data + message->offset, message->value) ? ncclSuccess : ncclUnhandledCudaError;
}

int carrier_receive(struct carrier *c) {
  struct ring_message message;
  carrier_watch(c);
  for (int r = 0; r < c->nRanks; r++)
    while (ring_waits(&c->board->rings[r]) && mover_has_room(c->adder, 0, false) && ring_take(&c->board->rings[r], &message)) {
      if (CARRIER_MISTAKE != 9) hold(c);
      if (!c->failed) c->failed = apply(c, &message);
      if (CARRIER_MISTAKE != 9) let(c);
    }
  return c->failed;
}

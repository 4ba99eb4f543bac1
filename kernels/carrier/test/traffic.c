/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"

struct op {
  enum { PUT, PUT_SIGNAL, PUT_INLINE, SIGNAL, EMPTY } kind;
  int add; /* or increment */
  int from, to; /* windows */
  size_t bytes, sourceAt, targetAt;
  uint64_t value, pattern;
};

static struct op op_of(const struct traffic *t, int context, int source, int target, uint64_t k) {
  uint64_t at = random_of(t->seed + random_of((uint64_t)((context * MAX_RANKS + source) * MAX_RANKS + target) + k * 64)), r = at;
  struct op op = {.pattern = random_of(at ^ 1)};
#define DRAW(n) (r = random_of(r), (size_t)(r >> 16) % (n))
  static const int kinds[16] = {PUT, PUT, PUT, PUT, PUT, PUT, EMPTY, PUT_INLINE, PUT_SIGNAL, PUT_SIGNAL, PUT_SIGNAL, PUT_SIGNAL, PUT_SIGNAL, PUT_SIGNAL, SIGNAL, SIGNAL};
  op.kind = (unsigned)kinds[DRAW(16)];
  if (k % EACH == EACH - 1 || k + 1 == t->each) op.kind = k % 2 ? PUT_SIGNAL : SIGNAL;
  op.add = DRAW(2) != 0;
  op.value = op.add ? 1 + DRAW(1u << 30) * 1024 : 1;
  op.from = (int)DRAW(WINDOWS), op.to = (int)DRAW(WINDOWS);
  if (op.kind == PUT || op.kind == PUT_SIGNAL) op.bytes = DRAW((size_t)1 << DRAW(17)) + 1; /* small ones as often as large ones */
  if (op.kind == PUT_INLINE) op.bytes = 8;
  size_t slot = ((size_t)(context * numRanks) * SLOTS + k % SLOTS) * SLOT_BYTES, room = SLOT_BYTES - op.bytes;
  op.sourceAt = slot + (size_t)target * SLOTS * SLOT_BYTES + DRAW(room);
  op.targetAt = slot + (size_t)source * SLOTS * SLOT_BYTES + DRAW(room);
  return op;
}

static void fill(unsigned char *at, const struct op *op) {
  for (size_t i = 0; i < op->bytes; i += 8) {
    uint64_t word = op->pattern + i * 0x9E3779B97F4A7C15u;
    memcpy(at + i, &word, op->bytes - i < 8 ? op->bytes - i : 8);
  }
}

static int is_filled(const unsigned char *at, const struct op *op) {
  for (size_t i = 0; i < op->bytes; i += 8) {
    uint64_t word = op->pattern + i * 0x9E3779B97F4A7C15u;
    if (memcmp(at + i, &word, op->bytes - i < 8 ? op->bytes - i : 8) != 0) return 0;
  }
  return 1;
}

/* ---- the proxy ---- */

struct queue { /* of one context and target, as NCCL's */
  void *requests[QUEUE];
  int done[QUEUE];
  uint64_t seen, consumed, next;
  int dead;
};

static struct queue queues[CONTEXTS][MAX_RANKS];

static void poll_completions(struct traffic *t, int context) {
  for (int target = 0; target < numRanks; target++) {
    struct queue *q = &queues[context][target];
    for (uint64_t i = q->consumed; i < q->seen; i++) {
      int *done = &q->done[i % QUEUE];
      if (!*done) {
        int result = poll_request(context, q->requests[i % QUEUE], done);
        if (*done) atomic_fetch_add(result == 0 ? &t->done : &t->failed, 1);
        CHECK(result == 0 || (result == ncclRemoteError && *done && target == t->dies), "%d of %d", result, target);
        if (result != 0) q->dead = 1;
      }
      if (*done && i == q->consumed) q->consumed++;
    }
  }
}

static int send_op(struct traffic *t, int context, int target) {
  struct queue *q = &queues[context][target];
  struct op op = op_of(t, context, rank, target, q->next);
  void **request = &q->requests[q->seen % QUEUE];
  uint64_t offset = op.sourceAt;
  void *source = comm.send[op.from].regions[context], *dest = comm.receive[op.to].regions[context];
  int result;
  *request = NULL;
  if (op.kind == PUT_INLINE) {
    offset = ((size_t)target * QUEUE + q->seen % QUEUE) * 8;
    source = comm.inlineRegions[context];
    fill((unsigned char *)comm.inlines[context] + offset, &op);
  } else if (op.bytes > 0) {
    fill(comm.send[op.from].at + op.sourceAt, &op);
  }
  if (op.kind == PUT_SIGNAL || op.kind == SIGNAL) {
    if (op.kind == SIGNAL) source = dest = NULL, offset = 0; /* as ncclGin::signal */
    result = post_signal(context, offset, source, op.bytes, op.kind == SIGNAL ? 0 : op.targetAt, dest, target, (uint64_t)rank * 8,
                         comm.signalRegions[context], op.add ? op.value : 77, op.add ? NCCL_NET_SIGNAL_OP_ADD : NCCL_NET_SIGNAL_OP_INC, request);
    if (result == 0) atomic_fetch_add(&t->signals, 1);
  } else {
    result = post_put(context, offset, source, op.bytes, op.targetAt, dest, target, request);
  }
  if (result != 0) {
    CHECK(result == ncclRemoteError && target == t->dies, "%d", result);
    q->dead = 1;
    return 0;
  }
  CHECK(*request != NULL);
  q->done[q->seen % QUEUE] = 0;
  q->seen++, q->next++;
  atomic_fetch_add(&t->puts, 1);
  return 1;
}

static void maybe_send(struct traffic *t, int context, int target, uint64_t *luck) {
  struct queue *q = &queues[context][target];
  if (q->dead || q->next == t->each || q->seen - q->consumed >= QUEUE) return;
  if (q->next - atomic_load(&shared->acknowledged[context][rank][target]) >= SLOTS) return;
  *luck = random_of(*luck);
  if (*luck % 4 == 0) return; /* kernels do not always have something */
  send_op(t, context, target);
  if (rank == t->dies && atomic_load(&t->puts) == t->diesAt) die();
}

/* So often in vain: for long, as where a rank is slow. */
static void rest(unsigned vain) {
  if (vain < 200) sched_yield();
  else usleep(100);
}

static uint64_t moves(const struct traffic *t) { return atomic_load(&t->puts) + atomic_load(&t->done) + atomic_load(&t->failed); }

static void *proxy(void *argument) {
  struct traffic *t = argument;
  uint64_t luck = t->seed + (uint64_t)rank, before = 0;
  unsigned vain = 0;
  while (!atomic_load(&t->stop)) {
    for (int c = 0; c < CONTEXTS; c++) {
      poll_completions(t, c);
      for (int target = 0; target < numRanks; target++) {
        maybe_send(t, c, target, &luck);
        CHECK(progress(c) == 0);
      }
    }
    if (rank == t->dies && t->slowUs > 0) usleep(t->slowUs);
    vain = moves(t) == before ? vain + 1 : 0;
    before = moves(t);
    rest(vain);
  }
  return NULL;
}

void traffic_start(struct traffic *t, pthread_t *thread) { CHECK(pthread_create(thread, NULL, proxy, t) == 0); }

/* ---- the kernel ---- */

/* What a signal of this value says: all before is there. The sum must be one that signals in their order have. */
static uint64_t check_until(const struct traffic *t, int context, int source, uint64_t from, uint64_t *sum, uint64_t seen) {
  while (*sum != seen) {
    CHECK(from < t->each, "context %d: signals of rank %d: %lx is no sum of theirs", context, source, (long)seen);
    struct op op = op_of(t, context, source, rank, from);
    CHECK(is_filled(comm.receive[op.to].at + op.targetAt, &op), "context %d: put %lu of rank %d, %zu bytes: its signal is here and its data is not", context,
          (long)from, source, op.bytes);
    if (op.kind == PUT_SIGNAL || op.kind == SIGNAL) *sum += op.value;
    from++;
  }
  return from;
}

void traffic_check(struct traffic *t) {
  uint64_t at[CONTEXTS][MAX_RANKS] = {0}, sum[CONTEXTS][MAX_RANKS] = {0};
  int expected = CONTEXTS * numRanks - (t->dies < 0 ? 0 : CONTEXTS), complete = 0;
  unsigned vain = 0;
  while (complete < expected || will_die(t->dies)) {
    complete = 0, vain++;
    for (int c = 0; c < CONTEXTS; c++)
      for (int source = 0; source < numRanks; source++) {
        uint64_t seen = __atomic_load_n(&comm.signals[c][source], __ATOMIC_ACQUIRE), *k = &at[c][source];
        if (seen != sum[c][source]) {
          vain = 0;
          *k = check_until(t, c, source, *k, &sum[c][source], seen);
          atomic_store(&shared->acknowledged[c][source][rank], *k);
        }
        complete += *k == t->each && source != t->dies;
      }
    rest(vain);
  }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a rank (lsa_rig.h): any collective, made by itself or in a group or captured, and every element of what it gives.
 */
#ifndef DYN_LSA_STEPS_H
#define DYN_LSA_STEPS_H

#include "lsa_rig.h"

enum { BROADCAST = 0, ALL_GATHER = 2, REDUCE_SCATTER = 3, ALL_REDUCE = 4, ALL_TO_ALL = 5 };
static const char *const names[] = {"ncclBroadcast", NULL, "ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclAlltoAll"};
#define FLOAT32 7
#define SUM 0
#define OWN_OPERATOR 5 /* ncclRedOpCreatePreMulSum gives such numbers */
#define MOST 3000      /* elements of a part */
#define SLOTS 6        /* calls in flight */
#define STREAMS 3

static CUstream streams[STREAMS];
static float *in[SLOTS], *out[SLOTS];

/* A call: the same on all ranks but for how it is grouped. */
struct step {
  int collective, root, op;
  size_t count;
  uint32_t action;
  CUstream stream;
  uint64_t seed;
};

static inline struct step step_of(uint64_t n) {
  static const int collectives[] = {ALL_REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL};
  uint64_t r = random_of(n);
  struct step s = {.collective = collectives[r % 6], .root = (int)(r >> 8) % numRanks, .op = r >> 12 & 7 ? SUM : OWN_OPERATOR,
                   .count = 1 + (r >> 16) % (r >> 40 & 3 ? 100 : MOST), .stream = streams[(r >> 44) % STREAMS], .seed = r};
  s.root = s.root < 0 ? 0 : s.root;
  static const uint32_t kernels[][3] = {[BROADCAST] = {0, 2, 2}, [ALL_GATHER] = {0, 2, 2}, [REDUCE_SCATTER] = {0, 2, 2}, [ALL_REDUCE] = {0, 1, 2}, [ALL_TO_ALL] = {0, 2, 2}};
  if (r >> 48 & 3) s.action = LSA(kernels[s.collective][(r >> 50) % 3], 1 + (r >> 52) % 3);
  return s;
}

static inline float value_of(const struct step *s, int ofRank, size_t i) { return (float)(random_of(s->seed + (uint64_t)ofRank * 977 + i) >> 20 & 0xff); }
static inline size_t parts_in(const struct step *s) { return s->collective == REDUCE_SCATTER || s->collective == ALL_TO_ALL ? (size_t)numRanks : 1; }
static inline size_t parts_out(const struct step *s) { return s->collective == ALL_GATHER || s->collective == ALL_TO_ALL ? (size_t)numRanks : 1; }
static inline bool adds(const struct step *s) { return s->collective == ALL_REDUCE || s->collective == REDUCE_SCATTER; }

static inline float wanted(const struct step *s, size_t i) {
  if (s->collective == ALL_GATHER) return value_of(s, (int)(i / s->count), i % s->count);
  if (s->collective == BROADCAST) return value_of(s, s->root, i);
  if (s->collective == ALL_TO_ALL) return value_of(s, (int)(i / s->count), (size_t)rank * s->count + i % s->count);
  if (s->collective == REDUCE_SCATTER) i += (size_t)rank * s->count;
  float sum = 0;
  for (int r = 0; r < numRanks; r++) sum += value_of(s, r, i);
  return sum;
}

static inline void fill(const struct step *s, int slot) {
  for (size_t i = 0; i < s->count * parts_in(s); i++) in[slot][i] = value_of(s, rank, i);
  for (size_t i = 0; i < s->count * parts_out(s) + 1; i++) out[slot][i] = -1;
}

static inline void compare(const struct step *s, int slot, bool ran) {
  size_t n = s->count * parts_out(s);
  for (size_t i = 0; i < n; i++)
    CHECK(out[slot][i] == (ran ? wanted(s, i) : -1), "%s, %zu elements, action %x: element %zu is %g and not %g", names[s->collective],
          s->count, s->action, i, out[slot][i], wanted(s, i));
  CHECK(out[slot][n] == -1, "behind the result");
}

static inline int issue(const struct step *s, int slot, uintptr_t comm) {
  uintptr_t send = (uintptr_t)in[slot], recv = (uintptr_t)out[slot], stream = (uintptr_t)s->stream;
  function call = find(names[s->collective]);
  switch (s->collective) {
    case ALL_GATHER:
    case ALL_TO_ALL: return call(send, recv, s->count, FLOAT32, comm, stream, 0, 0, 0);
    case BROADCAST: return call(send, recv, s->count, FLOAT32, (uintptr_t)s->root, comm, stream, 0, 0);
    default: return call(send, recv, s->count, FLOAT32, (uintptr_t)s->op, comm, stream, 0, 0);
  }
}

static inline bool runs(const struct step *s) { return s->action != 0 && (s->op == SUM || !adds(s)); }

static inline void bind_lsa(void) {
  struct step s = {.collective = ALL_REDUCE, .count = 1, .stream = streams[0]};
  planned = LSA(0, 1);
  fake->inside = do_bind;
  CHECK(issue(&s, 0, COMM) == 0 && asked == 0);
  fake->inside = succeed;
}

static inline void prepare(void) {
  make();
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == 0);
  for (int i = 0; i < SLOTS; i++) {
    CUdeviceptr a, b;
    CHECK(cuda.cuMemAlloc_v2(&a, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0 && cuda.cuMemAlloc_v2(&b, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0);
    in[i] = (float *)(uintptr_t)a;
    out[i] = (float *)(uintptr_t)b;
  }
}

static inline void begin(void) {
  prepare();
  bind_lsa();
}

static inline void wait_for_all(void) {
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamSynchronize(streams[i]) == 0);
}

static inline void group_start(void) { CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0); }
static inline void group_end(void) { CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0); }

/* One call by itself, or as the only one of its communicator in a group: each rank as it likes. */
static inline void make_call(const struct step *s, int slot, uint64_t how) {
  static const struct step others = {.collective = ALL_REDUCE, .count = 8};
  unsigned before = fake->calls, askedBefore = asked, groups = how % 4, other = how >> 2 & 1;
  planned = s->action;
  for (unsigned i = 1; i < groups; i++) group_start();
  if (groups > 1 && other) CHECK(issue(&others, slot, OTHER_COMM) == 0);
  CHECK(issue(s, slot, COMM) == 0);
  if (groups > 1) CHECK(asked == askedBefore && (!runs(s) || fake->calls == before + groups - 1 + other), "held back");
  if (groups > 1 && !other) CHECK(issue(&others, slot, OTHER_COMM) == 0);
  for (unsigned i = 1; i < groups; i++) group_end();
  unsigned nccl = fake->calls - before - (groups > 1 ? 2 * (groups - 1) + 1 : 0);
  CHECK(nccl == !runs(s), "NCCL had %u calls", nccl);
  bool able = s->op == SUM || !adds(s);
  CHECK(asked == askedBefore + (runs(s) || s->collective == ALL_TO_ALL), "asked %u times", asked - askedBefore);
  if (able) CHECK(askedBytes == s->count * sizeof(float) * (parts_in(s) > 1 ? parts_in(s) : parts_out(s)), "%lu bytes", askedBytes);
}

#define NODES 2 /* of a graph: kernels */

static inline CUgraphExec capture(struct step *steps, int slot) {
  CUgraph captured;
  CUgraphExec graph;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  capturing = true;
  for (int i = 0; i < NODES; i++) make_call(&steps[i], slot + i, (uint64_t)(rank + i));
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0);
  CHECK(cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  return graph;
}

static inline void fill_all(struct step *steps, int n, int slot, uint64_t seed) {
  for (int i = 0; i < n; i++) {
    steps[i].seed = random_of(seed * 8 + (uint64_t)i);
    fill(&steps[i], slot + i);
  }
}

#endif

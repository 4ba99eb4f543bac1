/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_lsa FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * Which calls become kernels and which NCCL's, in and out of groups, on several streams and in CUDA graphs, with every
 * element compared; and what becomes of those who wait for a rank that dies.
 */
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

static struct step step_of(uint64_t n) {
  static const int collectives[] = {ALL_REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL};
  uint64_t r = random_of(n);
  struct step s = {.collective = collectives[r % 6], .root = (int)(r >> 8) % numRanks, .op = r >> 12 & 7 ? SUM : OWN_OPERATOR,
                   .count = 1 + (r >> 16) % (r >> 40 & 3 ? 100 : MOST), .stream = streams[(r >> 44) % STREAMS], .seed = r};
  s.root = s.root < 0 ? 0 : s.root;
  static const uint32_t kernels[][3] = {[BROADCAST] = {0, 0, 0}, [ALL_GATHER] = {0, 2, 2}, [REDUCE_SCATTER] = {0, 2, 2}, [ALL_REDUCE] = {0, 1, 2}, [ALL_TO_ALL] = {0, 2, 2}};
  if (r >> 48 & 3) s.action = LSA(kernels[s.collective][(r >> 50) % 3], 1 + (r >> 52) % 3);
  return s;
}

static float value_of(const struct step *s, int ofRank, size_t i) { return (float)(random_of(s->seed + (uint64_t)ofRank * 977 + i) >> 20 & 0xff); }
static size_t parts_in(const struct step *s) { return s->collective == REDUCE_SCATTER || s->collective == ALL_TO_ALL ? (size_t)numRanks : 1; }
static size_t parts_out(const struct step *s) { return s->collective == ALL_GATHER || s->collective == ALL_TO_ALL ? (size_t)numRanks : 1; }
static bool adds(const struct step *s) { return s->collective == ALL_REDUCE || s->collective == REDUCE_SCATTER; }

static float wanted(const struct step *s, size_t i) {
  if (s->collective == ALL_GATHER) return value_of(s, (int)(i / s->count), i % s->count);
  if (s->collective == BROADCAST) return value_of(s, s->root, i);
  if (s->collective == ALL_TO_ALL) return value_of(s, (int)(i / s->count), (size_t)rank * s->count + i % s->count);
  if (s->collective == REDUCE_SCATTER) i += (size_t)rank * s->count;
  float sum = 0;
  for (int r = 0; r < numRanks; r++) sum += value_of(s, r, i);
  return sum;
}

static void fill(const struct step *s, int slot) {
  for (size_t i = 0; i < s->count * parts_in(s); i++) in[slot][i] = value_of(s, rank, i);
  for (size_t i = 0; i < s->count * parts_out(s) + 1; i++) out[slot][i] = -1;
}

static void compare(const struct step *s, int slot, bool ran) {
  size_t n = s->count * parts_out(s);
  for (size_t i = 0; i < n; i++)
    CHECK(out[slot][i] == (ran ? wanted(s, i) : -1), "%s, %zu elements, action %x: element %zu is %g and not %g", names[s->collective],
          s->count, s->action, i, out[slot][i], wanted(s, i));
  CHECK(out[slot][n] == -1, "behind the result");
}

static int issue(const struct step *s, int slot, uintptr_t comm) {
  uintptr_t send = (uintptr_t)in[slot], recv = (uintptr_t)out[slot], stream = (uintptr_t)s->stream;
  function call = find(names[s->collective]);
  switch (s->collective) {
    case ALL_GATHER:
    case ALL_TO_ALL: return call(send, recv, s->count, FLOAT32, comm, stream, 0, 0, 0);
    case BROADCAST: return call(send, recv, s->count, FLOAT32, (uintptr_t)s->root, comm, stream, 0, 0);
    default: return call(send, recv, s->count, FLOAT32, (uintptr_t)s->op, comm, stream, 0, 0);
  }
}

static bool runs(const struct step *s) { return s->action != 0 && (s->op == SUM || !adds(s)); }

static void bind(void) {
  struct step s = {.collective = ALL_REDUCE, .count = 1, .stream = streams[0]};
  planned = LSA(0, 1);
  fake->inside = do_bind;
  CHECK(issue(&s, 0, COMM) == 0 && asked == 0);
  fake->inside = succeed;
}

static void prepare(void) {
  make();
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == 0);
  for (int i = 0; i < SLOTS; i++) {
    CUdeviceptr a, b;
    CHECK(cuda.cuMemAlloc_v2(&a, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0 && cuda.cuMemAlloc_v2(&b, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0);
    in[i] = (float *)(uintptr_t)a;
    out[i] = (float *)(uintptr_t)b;
  }
}

static void begin(void) {
  prepare();
  bind();
}

static void wait_for_all(void) {
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamSynchronize(streams[i]) == 0);
}

static void group_start(void) { CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0); }
static void group_end(void) { CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0); }

/* One call by itself, or as the only one of its communicator in a group: each rank as it likes. */
static void make_call(const struct step *s, int slot, uint64_t how) {
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
  CHECK(asked == askedBefore + able, "asked %u times", asked - askedBefore);
  if (able) CHECK(askedBytes == s->count * sizeof(float) * (parts_in(s) > 1 ? parts_in(s) : parts_out(s)), "%lu bytes", askedBytes);
}

static void calls(void) {
  begin();
  for (uint64_t n = 0; n < 300; n += SLOTS) {
    struct step steps[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      steps[i] = step_of(n + (uint64_t)i);
      fill(&steps[i], i);
      make_call(&steps[i], i, random_of(n * 31 + (uint64_t)i * 7 + (uint64_t)rank));
    }
    wait_for_all();
    for (int i = 0; i < SLOTS; i++) compare(&steps[i], i, runs(&steps[i]));
    meet(); /* nobody fills what a peer still sends: as in any program */
  }
}

static uintptr_t madeComm[3]; /* of which the plugin meets the second */
static unsigned boundNow;
static bool expected;
static void bound(void *chooser) { boundNow += chooser == &planned; }
static int make_comms(void) {
  expected = preload->device->expect(lsa, &planned, choose, bound);
  for (int i = 0; i < 3; i++) madeComm[i] = COMM + 16 * (uintptr_t)(i != 1) * (uintptr_t)(i + 1);
  return 0;
}
static int make_in_thread(void) {
  pthread_t other;
  CHECK(pthread_create(&other, NULL, (void *(*)(void *))(void *)make_comms, NULL) == 0 && pthread_join(other, NULL) == 0);
  return 0;
}
static int make_then_fail(void) {
  make_comms();
  return 6;
}

/* Makes so many communicators in one group, the second of which is this rank's, and runs does at its end. */
static void make_group(int n, int (*does)(void)) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  boundNow = 0;
  memset(madeComm, 0, sizeof madeComm);
  group_start();
  for (int i = 0; i < n; i++) CHECK(init(&madeComm[i], numRanks, id, rank + (i == 1 ? 0 : 2 + i)) == 0);
  fake->inside = does;
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = succeed;
}

static void launched(bool is) {
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1), .stream = streams[0]};
  fill(&s, 0);
  planned = s.action;
  asked = 0;
  CHECK(issue(&s, 0, COMM) == 0 && asked == is, "known: %d", asked);
  wait_for_all();
  compare(&s, 0, is);
}

/* What a call of the program's makes is known when it returns, or its group ends, whatever thread NCCL makes it in; not
 * where two calls can be meant. */
static void made(void) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  prepare();
  make_group(3, make_then_fail);
  CHECK(expected && boundNow == 0, "the call failed");
  launched(false);
  make_group(3, make_in_thread);
  CHECK(expected && boundNow == 1);
  launched(true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  make_group(1, make_comms);
  CHECK(!expected, "another rank's");
  fake->inside = make_comms;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[1], 0, 0, 0, 0, 0) == 0);
  CHECK(expected && boundNow == 1, "a split tells neither ranks nor rank");
  fake->inside = succeed;
  launched(true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  group_start();
  CHECK(init(&madeComm[0], numRanks, id, rank) == 0 && find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[1], 0, 0, 0, 0, 0) == 0);
  fake->inside = make_comms;
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = succeed;
  CHECK(!expected, "either can be meant");
  launched(false);
}

/* Several calls of a communicator in a group are NCCL's, in their order, whatever the plan says; also beside a send, and
 * where the group only simulates. */
static void groups(void) {
  begin();
  struct step a = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0]}, b = a;
  b.collective = ALL_GATHER;
  planned = LSA(0, 1);
  group_start();
  unsigned before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && fake->calls == before, "held back");
  CHECK(issue(&b, 1, COMM) == 0 && fake->calls == before + 2 && strcmp(fake->name, "ncclAllGather") == 0, "in order");
  CHECK(issue(&a, 2, COMM) == 0 && fake->calls == before + 3);
  group_end();
  group_start();
  before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && find("ncclSend")(0, 1, FLOAT32, 1, COMM, 0, 0, 0, 0) == 0 && fake->calls == before + 2);
  group_end();
  group_start();
  CHECK(find("ncclSend")(0, 1, FLOAT32, 1, COMM, 0, 0, 0, 0) == 0);
  before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && fake->calls == before + 1);
  group_end();
  group_start();
  before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && fake->calls == before);
  CHECK(find("ncclGroupSimulateEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && fake->calls == before + 2);
  CHECK(asked == 0, "the plan was asked %u times", asked);
  fill(&a, 0); /* and nothing of it is left behind */
  a.action = planned;
  make_call(&a, 0, 0);
  wait_for_all();
  compare(&a, 0, true);
}

#define NODES 2 /* of a graph: kernels */

static CUgraphExec capture(struct step *steps, int slot) {
  CUgraph captured;
  CUgraphExec graph;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  for (int i = 0; i < NODES; i++) make_call(&steps[i], slot + i, (uint64_t)(rank + i));
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0);
  CHECK(cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  return graph;
}

static void fill_all(struct step *steps, int n, int slot, uint64_t seed) {
  for (int i = 0; i < n; i++) {
    steps[i].seed = random_of(seed * 8 + (uint64_t)i);
    fill(&steps[i], slot + i);
  }
}

/* Two graphs are replayed at once, on streams of their own, while a call goes on: the graphs take turns, in the same order on
 * all ranks; between graphs and calls ranks need no order. */
static void graphs(void) {
  begin();
  CUgraphExec graph[2];
  struct step steps[2][NODES], call = {.collective = ALL_REDUCE, .count = 500, .stream = streams[1], .action = LSA(1, 2)};
  for (int g = 0; g < 2; g++) {
    for (int i = 0; i < NODES; i++)
      steps[g][i] = (struct step){.collective = ALL_REDUCE, .count = 50 + 1000 * (size_t)(g + i), .stream = streams[0], .action = LSA((g + i) % 3, 3)};
    graph[g] = capture(steps[g], g * NODES);
  }
  for (uint64_t n = 0; n < 40; n++) {
    for (int g = 0; g < 2; g++) fill_all(steps[g], NODES, g * NODES, 2 * n + (uint64_t)g);
    fill_all(&call, 1, 2 * NODES, n + 1000);
    meet();
    if (rank == 0) make_call(&call, 2 * NODES, 0);
    CHECK(cuda.cuGraphLaunch(graph[0], streams[0]) == 0);
    CHECK(cuda.cuGraphLaunch(graph[1], streams[2]) == 0);
    if (rank != 0) make_call(&call, 2 * NODES, 0);
    wait_for_all();
    for (int g = 0; g < 2; g++)
      for (int i = 0; i < NODES; i++) compare(&steps[g][i], g * NODES + i, true);
    compare(&call, 2 * NODES, true);
    meet();
  }
}

/* NCCL asks nobody about an AllToAll, so it counts before NCCL sees it: also one that no kernel can run, in a group or not. */
static void counted(void) {
  begin();
  for (unsigned n = 0; n < 4; n++) {
    unsigned before = fake->calls;
    planned = LSA(0, 1);
    asked = 0;
    if (n & 1) group_start();
    CHECK(find("ncclAlltoAll")((uintptr_t)in[0], (uintptr_t)out[0], 4, 99, COMM, (uintptr_t)streams[0], 0, 0, 0) == 0);
    if (n > 1) CHECK(find("ncclAlltoAll")((uintptr_t)in[0], (uintptr_t)out[0], 4, FLOAT32, OTHER_COMM, (uintptr_t)streams[0], 0, 0, 0) == 0);
    if (n & 1) group_end();
    CHECK(asked == 1 && fake->calls == before + 1 + 2 * (n & 1) + (n > 1), "asked %u times", asked);
  }
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int async_error(void) {
  int error = 0;
  CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&error, 0, 0, 0, 0, 0, 0, 0) == 0);
  return error;
}

/* The others' kernels give up, and the program hears of it. */
static void death(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  CHECK(async_error() == 0);
  if (rank == numRanks - 1) _exit(0);
  uint64_t began = now_ms();
  make_call(&s, 0, 0);
  wait_for_all();
  CHECK(now_ms() - began < 5000, "waited for %d ms", (int)(now_ms() - began));
  CHECK(async_error() == 6 && issue(&s, 0, COMM) == 6);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

/* Rank 0 ends what the others never began: it aborts, or shrinks with NCCL_SHRINK_ABORT; without that NCCL waits as well. */
static void ends(bool shrinks) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
  if (rank == 0) {
    make_call(&s, 0, 0);
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, (void *(*)(void *))(void *)wait_for_all, NULL) == 0);
    usleep(100000);
    if (shrinks) {
      find("ncclCommShrink")(COMM, 0, 0, 0, 0, 0, 0, 0, 0);
      usleep(100000);
      CHECK(async_error() == 0, "NCCL waits for the calls under way");
      find("ncclCommShrink")(COMM, 0, 0, 0, 0, 1, 0, 0, 0);
      CHECK(async_error() == 0 && issue(&s, 0, COMM) == 6);
    } else {
      CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    }
    CHECK(pthread_join(waiter, NULL) == 0);
    preload->device->close(lsa);
  }
  meet();
}

static void aborts(void) { ends(false); }
static void shrinks(void) { ends(true); }

/* Memory of a communicator that is gone serves the next, as fresh as the first. */
static void again(void) {
  begin();
  uint64_t first = shared->offers[rank].at;
  for (int round = 0; round < 4; round++) {
    struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(round % 3, 2), .seed = (uint64_t)round};
    fill(&s, 0);
    make_call(&s, 0, 0);
    if (round & 1) wait_for_all();
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0); /* also in flight */
    preload->device->close(lsa);
    wait_for_all();
    compare(&s, 0, true);
    meet();
    make();
    CHECK(shared->offers[rank].at == first, "other memory");
    asked = 0;
    bind();
  }
}

static void refused(void) {
  setenv("FAKEGPU_IPC", "refuse", 1);
  lsa = preload->device->offer((uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  CHECK(lsa != NULL);
  meet();
  CHECK(!preload->device->open(lsa, shared->offers), "opened");
  preload->device->close(lsa);
  meet();
  unsetenv("FAKEGPU_IPC");
  setenv("DYNAMICCL_SCRATCH_MIB", rank == 0 ? "8" : "16", 1);
  lsa = preload->device->offer((uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  meet();
  CHECK(!preload->device->open(lsa, shared->offers), "of different sizes");
  preload->device->close(lsa);
}

int main(int argc, char **argv) {
  char kernels[4096];
  CHECK(argc == 3, "FOLDER LIBCUDA");
  folder = argv[1];
  driverPath = argv[2];
  write_kernels(kernels);
  for (int ranks = 2; ranks <= MAX_RANKS; ranks++) play("calls", ranks, calls);
  play("made", 2, made);
  play("counted", 2, counted);
  play("groups", 2, groups);
  play("graphs", 3, graphs);
  play("again", 3, again);
  play("death", 3, death);
  play("aborts", 2, aborts);
  play("shrinks", 2, shrinks);
  play("refused", 2, refused);
  unlink(kernels);
  return 0;
}

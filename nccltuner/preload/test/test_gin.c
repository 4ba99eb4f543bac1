/* SPDX-License-Identifier: Apache-2.0
 *
 *   test_gin LIBCUDA LIBNCCL [backends|late|places|...]    the stand-ins of ../../fakegpu; FAKEGPU_TABLE is theirs; backends: of 2.32.3 alone,
 *                                               where a communicator may have several; late: ranks that are late alone
 * The life of GIN on a communicator: the moves between its states; calls, on several streams and in CUDA graphs, with every
 * element compared; what puts take; what becomes of it where a rank's signals do not arrive, NCCL fails on a rank, a rank
 * dies, leaves early, or forks.
 */
#include <pthread.h>

#include "../../../kernels/host/gin_life.h"
#include "gin_rig.h"
#include "exchange.h"
#include "gin_states.h"

/* ---- calls ---- */

static uint32_t backends[DYN_GIN_LIVES] = {DYN_BACKEND_PROXY}; /* that NCCL has here, in the order in which they are made */
static int usable(void) { return 1 + (backends[1] != 0); }
static unsigned contexts = 2; /* that each has */

struct step {
  int collective;
  size_t count;
  unsigned ctas, contexts, stream;
  uint32_t backend;
  uint64_t seed;
  bool closely; /* timed */
  bool inPlace; /* AllReduce */
};

static struct step step_of(uint64_t n) {
  uint64_t r = random_of(n);
  static const int all[] = {DYN_ALL_REDUCE, DYN_ALL_TO_ALL, DYN_ALL_GATHER, DYN_REDUCE_SCATTER};
  struct step s = {.collective = all[r & 3], .ctas = (unsigned)(r >> 4) % 5, .contexts = (unsigned)(r >> 12) % 4, .stream = (unsigned)(r >> 8) % STREAMS, .seed = r};
  size_t most = (r >> 16 & 7) == 0 ? (s.collective == DYN_ALL_REDUCE && (r >> 19 & 3) != 0 ? 60000 : MOST) : 300; /* AllReduce in one piece and in several */
  s.count = 1 + (r >> 20) % most;
  s.backend = backends[(r >> 40) % (uint64_t)usable()];
  s.inPlace = s.collective == DYN_ALL_REDUCE && r >> 44 & 1;
  return s;
}

OF_ONE_THREAD static float value_of(const struct step *s, int ofRank, size_t i) { return (float)(random_of(s->seed + (uint64_t)ofRank * 977 + i) >> 20 & 0xff); }

/* Elements, of what a rank sends or gets. */
OF_ONE_THREAD static size_t sent(const struct step *s) { return s->count * (s->collective == DYN_ALL_TO_ALL || s->collective == DYN_REDUCE_SCATTER ? (size_t)numRanks : 1); }
OF_ONE_THREAD static size_t got(const struct step *s) { return s->count * (s->collective == DYN_ALL_TO_ALL || s->collective == DYN_ALL_GATHER ? (size_t)numRanks : 1); }

OF_ONE_THREAD static void fill(const struct step *s, int slot) {
  for (size_t i = 0; i < sent(s); i++) in[slot][i] = value_of(s, rank, i);
  for (size_t i = 0; i <= got(s); i++) out[slot][i] = s->inPlace && i < s->count ? in[slot][i] : -1;
}

OF_ONE_THREAD static void compare(const struct step *s, int slot) {
  size_t own = (size_t)rank * s->count, n = got(s);
  for (size_t i = 0; i < n; i++) {
    int from = (int)(i / s->count);
    float want = s->collective == DYN_ALL_GATHER ? value_of(s, from, i % s->count) : s->collective == DYN_ALL_TO_ALL ? value_of(s, from, own + i % s->count) : 0;
    bool adds = s->collective == DYN_ALL_REDUCE || s->collective == DYN_REDUCE_SCATTER;
    for (int r = 0; r < numRanks && adds; r++) want += value_of(s, r, s->collective == DYN_REDUCE_SCATTER ? own + i : i);
    CHECK(out[slot][i] == want, "collective %d, %zu elements: element %zu is %g and not %g", s->collective, s->count, i, out[slot][i], want);
  }
  CHECK(out[slot][n] == -1, "behind the result");
}

static struct dyn_work work_of(const struct step *s, int slot) {
  return (struct dyn_work){s->collective, s->inPlace ? out[slot] : in[slot], out[slot], s->count, FLOAT32, SUM, 0, streams[s->stream], true, NULL, NULL};
}

static int issue(const struct step *s, int slot) {
  struct dyn_work work = work_of(s, slot);
  unsigned ctas = 0;
  uint32_t backend = s->backend == 0 ? backends[0] : s->backend, able = contexts > 1 ? DYN_ABLE_CONTEXTS : 0;
  for (int i = 0; i < usable(); i++) able |= DYN_ABLE_GIN(backends[i]);
  CHECK(dyn_lsa_able(lsa, &work) == able, "%zu elements", s->count);
  int result = dyn_lsa_launch(lsa, &work, GIN(backend, s->ctas, s->contexts) | (s->closely ? DYN_GIN_CLOSELY << DYN_ACTION_ALGO_SHIFT : 0), &ctas, NULL);
  CHECK(result != 0 || (ctas >= 1 && ctas <= (s->ctas == 0 ? 2 : s->ctas)), "%u CTAs of %u", ctas, s->ctas);
  return result;
}

static void wait_for_all(void) {
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamSynchronize(streams[i]) == 0);
}

/* Contexts, and queues of 64 entries or, of GDAKI, 128; without the second context twice as many. */
static uint32_t granted_of(uint32_t backend) { return backend << 8 | contexts << 16 | ((backend == DYN_BACKEND_GDAKI ? 8u : 7u) + (contexts == 1)) << 24; }

static void begin(void) {
  load();
  CHECK(dyn_gin_can() && make_gin(), "it is not made");
  CHECK(dyn_gin_now(lsa) == DYN_GIN_ACTIVE && told() == (DYN_GIN_ACTIVE | granted_of(backends[0])), "told %x", told());
  CHECK(self.ginSecond == (backends[1] == 0 ? 0 : DYN_GIN_ACTIVE | granted_of(backends[1])), "told %x of the second", self.ginSecond);
  CHECK(self.ginSignals >= 2 * 2 * 16 * (unsigned)numRanks && self.ginCounters >= 2 * 16 * (unsigned)numRanks);
  meet();
}

static void play_calls(uint64_t seed, int rounds) {
  for (int n = 0; n < rounds; n++) {
    struct step steps[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      steps[i] = step_of(seed + (uint64_t)(n * SLOTS + i));
      fill(&steps[i], i);
    }
    for (int i = 0; i < SLOTS; i++) CHECK(issue(&steps[i], i) == 0);
    wait_for_all();
    for (int i = 0; i < SLOTS; i++) compare(&steps[i], i);
    meet(); /* nobody fills what a peer still sends: as in any program */
  }
}

/* Two graphs on two streams, replayed while a call goes on: graphs take turns, calls have slots of their own. */
static CUgraph played[2];
static CUgraphExec replays[2];
static void play_graphs(void) {
  struct step steps[3] = {{.collective = DYN_ALL_TO_ALL, .count = 5000, .ctas = 2},
                          {.collective = DYN_ALL_REDUCE, .count = 700, .ctas = 1},
                          {.collective = DYN_ALL_TO_ALL, .count = 40, .ctas = 2, .stream = 1}};
  for (int g = 0; g < 2; g++) {
    CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    CHECK(issue(&steps[g], g) == 0 && cuda.cuStreamEndCapture(streams[0], &played[g]) == 0 && cuda.cuGraphInstantiateWithFlags(&replays[g], played[g], 0) == 0);
  }
  for (uint64_t n = 0; n < 20; n++) {
    for (int i = 0; i < 3; i++) {
      steps[i].seed = random_of(n * 3 + (uint64_t)i);
      fill(&steps[i], i);
    }
    meet();
    if (rank == 0) CHECK(issue(&steps[2], 2) == 0);
    CHECK(cuda.cuGraphLaunch(replays[0], streams[0]) == 0 && cuda.cuGraphLaunch(replays[1], streams[2]) == 0);
    if (rank != 0) CHECK(issue(&steps[2], 2) == 0);
    wait_for_all();
    for (int i = 0; i < 3; i++) compare(&steps[i], i);
    meet();
  }
}

static int issue_exchange(const struct exchange *x, int slot, int stream) {
  return dyn_lsa_exchange(lsa, &(struct dyn_exchange){in[slot], x->sendCounts, x->sendOffsets, out[slot], x->recvCounts, x->recvOffsets, FLOAT32, DYN_PATH_GIN, streams[stream], NULL});
}

/* Parts of any sizes, between calls of equal ones. */
static void play_exchanges(uint64_t seed, int rounds) {
  for (int n = 0; n < rounds; n++) {
    struct step steps[SLOTS];
    struct exchange x[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      steps[i] = step_of(seed + (uint64_t)(n * SLOTS + i));
      exchange_make(&x[i], seed + (uint64_t)(n * SLOTS + i), MOST);
      if (i & 1) fill(&steps[i], i);
      else exchange_fill(&x[i], in[i], out[i]);
    }
    for (int i = 0; i < SLOTS; i++) CHECK((i & 1 ? issue(&steps[i], i) : issue_exchange(&x[i], i, i % STREAMS)) == 0);
    wait_for_all();
    for (int i = 0; i < SLOTS; i++) {
      if (i & 1) compare(&steps[i], i);
      else exchange_compare(&x[i], out[i]);
    }
    meet();
  }
}

static void end(uint32_t want) {
  dyn_lsa_settle(lsa, 1000000000);
  dyn_gin_destroy(lsa);
  CHECK(dyn_gin_now(lsa) == want && (told() & 255) == want, "%s", dyn_gin_state_name(dyn_gin_now(lsa)));
  dyn_lsa_close(lsa);
}

static void calls(void) {
  begin();
  play_calls(1, 40);
  CHECK(dyn_gin_now(lsa) == DYN_GIN_IN_FLIGHT || dyn_gin_now(lsa) == DYN_GIN_COMPLETE);
  end(DYN_GIN_DESTROYED);
  meet();
  CHECK(make_gin(), "a second one"); /* of the same ranks */
  meet();
  play_calls(1000, 5);
  end(DYN_GIN_DESTROYED);
}

static void exchanges(void) {
  begin();
  CHECK(dyn_lsa_can_exchange(lsa, DYN_PATH_GIN) && !dyn_lsa_can_exchange(lsa, DYN_PATH_LSA) && !dyn_lsa_can_exchange(lsa, 0));
  play_exchanges(5000, 20);
  end(DYN_GIN_DESTROYED);
  CHECK(!dyn_lsa_can_exchange(lsa, DYN_PATH_GIN), "behind its end");
}

static void graphs(void) {
  begin();
  play_graphs();
  uint32_t now = dyn_gin_now(lsa);
  end(now); /* a graph may be replayed: nothing is given back */
}

#include "gin_trips.h"
#include "gin_contexts.h"
#include "gin_captured.h"

/* Sizes, types and operators beyond what it has are NCCL's, on all ranks alike. */
static void able(void) {
  begin();
  struct dyn_work work = {DYN_ALL_REDUCE, in[0], out[0], 65536, FLOAT32, SUM, 0, NULL, true, NULL, NULL};
  CHECK(dyn_lsa_able(lsa, &work) != 0, "256 KiB");
  work.count = 1 << 28;
  CHECK(dyn_lsa_able(lsa, &work) != 0, "1 GiB in rounds");
  work.count++;
  CHECK(dyn_lsa_able(lsa, &work) == 0, "more");
  work.count = DYN_GIN_SLOT_BYTES / 4, work.datatype = 2;
  CHECK(dyn_lsa_able(lsa, &work) != 0, "integers in one piece");
  work.count++;
  CHECK(dyn_lsa_able(lsa, &work) == 0, "and in rounds");
  work.count = 10, work.datatype = FLOAT32, work.op = 5;
  CHECK(dyn_lsa_able(lsa, &work) == 0, "an operator of the program's");
  work.op = SUM, work.collective = DYN_BROADCAST;
  CHECK(dyn_lsa_able(lsa, &work) == 0, "Broadcast");
  work.collective = DYN_ALL_TO_ALL, work.count = (1 << 28) / (size_t)numRanks;
  CHECK(dyn_lsa_able(lsa, &work) != 0, "1 GiB");
  work.count++;
  CHECK(dyn_lsa_able(lsa, &work) == 0, "more");
  CHECK(dyn_lsa_room(lsa, DYN_ALL_REDUCE, 1 << 30) != 0 && dyn_lsa_room(lsa, DYN_ALL_REDUCE, (1 << 30) + 1) == 0 && !dyn_lsa_near(lsa));
}

/* Hierarchical kernels run where nodes have several ranks, but for calls that are to be flat, and what has none stays flat. */
static void choice(void) {
  static const struct { int collective, datatype; bool hierarchical; size_t count; } wants[] = {
      {DYN_ALL_GATHER, FLOAT32, true, 100}, {DYN_ALL_TO_ALL, 0, true, 100}, {DYN_REDUCE_SCATTER, FLOAT32, true, 100}, {DYN_REDUCE_SCATTER, 6, true, 100},
      {DYN_REDUCE_SCATTER, 9, true, 100}, {DYN_REDUCE_SCATTER, 0, false, 100}, {DYN_REDUCE_SCATTER, 8, false, 100}, {DYN_REDUCE_SCATTER, 2, false, 100},
      {DYN_ALL_REDUCE, FLOAT32, false, 100}, {DYN_ALL_REDUCE, FLOAT32, false, DYN_GIN_SLOT_BYTES / 4 - 1}, {DYN_ALL_REDUCE, FLOAT32, true, DYN_GIN_SLOT_BYTES / 4}, {DYN_ALL_REDUCE, 2, false, DYN_GIN_SLOT_BYTES / 4}};
  begin();
  bool several = numNodes > 1 && numRanks > numNodes;
  CHECK(lsa->gin->each[0].granted.lsaSize == numRanks / numNodes && lsa->gin->each[0].granted.lsaRank == rank % (numRanks / numNodes), "%d of %d", lsa->gin->each[0].granted.lsaRank, lsa->gin->each[0].granted.lsaSize);
  for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
    struct dyn_work work = {.collective = wants[i].collective, .count = wants[i].count, .datatype = wants[i].datatype};
    struct dyn_gin_call call = {0};
    struct dyn_gin_choice got = dyn_gin_choose(&lsa->gin->each[0], &work, false, lsa->mostCtas, &call), asked = dyn_gin_choose(&lsa->gin->each[0], &work, true, lsa->mostCtas, &call);
    CHECK(asked.roles == 1 && (asked.function == got.function) == (got.roles == 1), "%zu: the flat kernel is another one only where there are two", i);
    CHECK(got.function != NULL && (got.roles == 3) == (several && wants[i].hierarchical) && got.roles * got.most <= DYN_GIN_CALLS && got.most <= DYN_GIN_MAX_BLOCKS, "%zu: %u roles", i, got.roles);
    CHECK(call.same == (wants[i].collective == DYN_ALL_GATHER));
  }
  struct dyn_gin_choice parts = dyn_gin_choose_parts(&lsa->gin->each[0], lsa->mostCtas);
  CHECK(parts.function == (several ? lsa->gin->each[0].module->moveParts : lsa->gin->each[0].module->allToAllV) && parts.roles == (several ? 3 : 1), "AllToAllv: %u roles", parts.roles);
  CHECK(parts.roles * parts.most <= DYN_GIN_CALLS && parts.most <= DYN_GIN_MAX_BLOCKS);
  end(DYN_GIN_DESTROYED);
}

/* ---- what goes wrong ---- */

static uint64_t now_ms(void) { return dyn_host_ns() / 1000000; }

/* hears: the one rank to which all come. */
static void fails(const char *how, const char *ofRank, int hears) {
  setenv("FAKEGPU_GIN", how, 1);
  setenv("FAKEGPU_GIN_RANK", ofRank, 1);
  load();
  uint64_t began = now_ms();
  uint32_t want = rank == hears ? DYN_GIN_ACTIVE : DYN_GIN_FAILED;
  CHECK(make_gin() == (rank == hears) && dyn_gin_now(lsa) == want && (told() & 255) == want, "%s", dyn_gin_state_name(dyn_gin_now(lsa)));
  CHECK(now_ms() - began < in_vain_s(9) * 1000, "after %d ms", (int)(now_ms() - began));
  bool able = dyn_lsa_able(lsa, &(struct dyn_work){.collective = DYN_ALL_REDUCE, .count = 1, .datatype = FLOAT32}) != 0;
  CHECK(able == (rank == hears), "NCCL's");
  meet(); /* until all have seen it: who ends earlier is dead to the others */
  end(rank == hears ? DYN_GIN_FAILED : want);
  meet();
}
static void silent(void) { fails("silent", "1", 1); }
static void none(void) { fails("none", "0", -1); }
static void everywhere(void) { fails("none", "", -1); }
/* The process of a rank ends while the others make it with that rank. */
static void dies(void) {
  setenv("FAKEGPU_GIN", "dies", 1);
  setenv("FAKEGPU_GIN_RANK", "2", 1);
  load();
  bool made = make_gin();
  CHECK(rank != 2 && !made && dyn_gin_now(lsa) == DYN_GIN_FAILED);
}

/* Kernels that wait for a rank that dies give up, and the program hears of it. */
static void death(void) {
  begin();
  struct step s = {.collective = numNodes > 1 ? DYN_ALL_GATHER : DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  if (rank == numRanks - 1) _exit(0);
  fill(&s, 0);
  CHECK(issue(&s, 0) == 0);
  uint64_t began = now_ms();
  wait_for_all();
  CHECK(now_ms() - began < in_vain_s(5) * 1000 && dyn_lsa_stopped(lsa) && dyn_gin_now(lsa) == DYN_GIN_FAILED, "after %d ms", (int)(now_ms() - began));
  CHECK(dyn_lsa_able(lsa, &(struct dyn_work){.collective = DYN_ALL_REDUCE, .count = 1, .datatype = FLOAT32}) == 0);
  dyn_lsa_close(lsa);
}

/* A rank that ends its communicator long before the others does not wait for them for ever. */
static void leaves(void) {
  begin();
  if (rank == 0) {
    uint64_t began = now_ms();
    end(DYN_GIN_FAILED);
    CHECK(now_ms() - began < in_vain_s(9) * 1000);
  }
  meet();
}

#include "gin_late.h"
#include "gin_asked.h"
#include "gin_expected.h"
#include "gin_children.h"
#include "gin_memory.h"
#include "gin_lanes.h"
#include "gin_backends.h"
#include "gin_places.h"

static void other_version(void) {
  load();
  CHECK(!dyn_gin_can(), "a version of NCCL's that the kernels do not know");
}

/* By one backend, that of 2.28.9. */
static void all_of_one(void) {
  play("calls", 3, calls);
  play("calls", 2, calls);
  play_on(2, "calls", 4, calls);
  play_on(3, "calls", 6, calls);
  play("exchanges", 3, exchanges);
  play_on(2, "exchanges", 4, exchanges);
  play("graphs", 3, graphs);
  play("trips", 3, trips_of_calls);
  play("trips of CTAs on one context", 3, trips_of_shared);
  play("trips told closely", 3, trips_told_closely);
  play_on(2, "graphs", 4, graphs);
  play_on(2, "several kernels of a call in a graph", 4, captured_kernels);
  play("behind graphs", 2, behind_graphs);
  play("choice", 2, choice);
  play_on(2, "choice", 2, choice);
  play_on(2, "choice", 4, choice);
  all_places();
  all_contexts_of_older();
  play("able", 2, able);
  steps_wait_s(IN_VAIN);
  play("silent", 3, silent);
  play("none", 3, none);
  play("everywhere", 2, everywhere);
  play_but("dies", 3, dies, 3);
  steps_wait_s(AS_EVER);
  play("death", 3, death);
  play("death while kept", 2, death_while_kept);
  play("completes", 2, completes);
  play("expected", 3, expected);
  play_on(2, "expected while a node is late", 4, expected_while_late);
  play("expected when stopped", 2, expected_when_stopped);
  play("expected when parting", 2, expected_when_parting);
  play("expected in vain when parting", 2, expected_in_vain_when_parting);
  play_on(2, "death", 4, death);
  play("children", 2, children_of_ranks);
  all_late();
  play("no memory", 2, no_memory);
  give_up_in_lanes();
  probes_give_up();
  play("leaves", 2, leaves);
}

int main(int argc, char **argv) {
  char kernels[4096];
  if (argc < 3) return 2;
  driverPath = argv[1];
  ncclPath = argv[2];
  states();
  write_kernels(kernels);
  steps_wait_s(AS_EVER);
  setenv("FAKEGPU_OPTIONS", "--nccl 2.28.9", 1);
  if (argc == 3) all_of_one();
  if (argc > 3 && strcmp(argv[3], "kept") == 0) return play("death while kept", 2, death_while_kept), play("completes", 2, completes), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "expected") == 0) return play("expected", 3, expected), play_on(2, "expected while a node is late", 4, expected_while_late), play("expected when stopped", 2, expected_when_stopped), play("expected when parting", 2, expected_when_parting), play("expected in vain when parting", 2, expected_in_vain_when_parting), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "behind") == 0) return play("behind graphs", 2, behind_graphs), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "late") == 0) return all_late(), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "places") == 0) return all_places(), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "memory") == 0) return play("no memory", 2, no_memory), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "near") == 0) return play("near on some", 3, near_on_some), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "contexts") == 0) all_contexts_of_older();
  if (argc > 3 && strcmp(argv[3], "lanes") == 0) give_up_in_lanes(), probes_give_up();
  setenv("FAKEGPU_OPTIONS", "--nccl 2.32.3", 1);
  if (argc > 3 && strcmp(argv[3], "lanes") == 0) return lanes_of_several(), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "either") == 0) return parted(), of_several(), late_of_several(), unlink(kernels) != 0;
  if (argc > 3 && strcmp(argv[3], "contexts") == 0) return of_several(), all_contexts(), unlink(kernels) != 0;
  if (argc == 3) all_of_newer();
  all_of_several();
  setenv("FAKEGPU_OPTIONS", "--nccl 2.30.7", 1);
  play("version", 1, other_version);
  CHECK(unlink(kernels) == 0);
  return 0;
}

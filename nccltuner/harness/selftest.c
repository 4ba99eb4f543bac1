/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of what a run's figures rest on: the table and its rules, NCCL's cost table with its -1 entries, channels,
 * random numbers that all ranks agree on, virtual time. Each check names what it found.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "log.h"
#include "rng.h"

static FILE *report;
static int failures, checks;

static void check(int ok, const char *format, ...) {
  va_list args;
  checks++;
  if (ok) return;
  failures++;
  va_start(args, format);
  vfprintf(report, format, args);
  va_end(args);
  fputc('\n', report);
}

#define HEADER \
  "machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n"
#define ROW "m,2.28.9,4,2,socket,quiet,"

static int parse(struct table *table, const char *text, char *error) {
  char *copy = strdup(text);
  int result = table_parse(table, "test.csv", copy, error, 256);
  free(copy);
  return result;
}

static void test_table(void) {
  struct table t;
  char error[256] = "";
  int ok = parse(&t,
                 HEADER ROW "AllReduce,1024,default,-,-,-,50\n" ROW "AllReduce,1024,default,-,-,-,70\n" ROW
                            "AllReduce,1024,collective,Tree,LL,2,40\n" ROW
                            "AllReduce,1024,collective,Tree,LL,8,20\n\n" ROW
                            "AllReduce,4096,default,-,-,-,90\r\n" ROW "AllReduce,4096,collective,Ring,LL128,4,10\n" ROW
                            "AllToAll,1024,default,-,-,-,5\n" ROW "AllReduce,1024,symmetric,-,-,-,1\n" ROW
                            "AllReduce,1024,lsa,twoshot,-,16,1\n",
                 error) == 0;
  check(ok, "table: a good table was refused: %s", error);
  if (!ok) return;
  check(t.nRanks == 4 && t.nNodes == 2 && strcmp(t.condition, "quiet") == 0, "table: shape or condition is wrong");
  const struct table_cell *c = table_find(&t, FUNC_ALLREDUCE, 1024);
  check(c != NULL && c->defaultNs == 60000, "table: two defaults of 50 and 70 us must give their mean");
  check(c == table_find(&t, FUNC_ALLREDUCE, 1) && c == table_find(&t, FUNC_ALLREDUCE, 2048),
        "table: the nearest size, the smaller one of two as near, must be found");
  check(table_find(&t, FUNC_ALLREDUCE, 2049)->bytes == 4096, "table: 2049 bytes are nearer to 4096 in log2");
  check(table_find(&t, FUNC_ALLREDUCE, UINT64_MAX)->bytes == 4096, "table: a huge size must find the largest");
  check(table_find(&t, FUNC_ALLREDUCE, 0) == NULL && table_find(&t, FUNC_BROADCAST, 1024) == NULL,
        "table: zero bytes and an unrecorded collective have no cell");
  check(fabs(table_cost(c, ALGO_TREE, PROTO_LL, 4) - 30000) < 1e-6, "table: 4 channels lie half way of 2 and 8 in "
        "log2");
  check(table_cost(c, ALGO_TREE, PROTO_LL, 1) == 40000 && table_cost(c, ALGO_TREE, PROTO_LL, 64) == 20000,
        "table: outside of the recorded channels the outermost cost holds");
  check(table_cost(c, ALGO_RING, PROTO_LL, 4) == 0 && table_cost(c, 99, PROTO_LL, 4) == 0, "table: unrecorded must "
        "cost 0");
  struct table_best best = table_best(c, UINT32_MAX, 32);
  check(best.costNs == 20000 && best.channels == 8 && best.algorithm == ALGO_TREE, "table: the best of 1024 is "
        "Tree/LL/8");
  check(table_best(c, UINT32_MAX, 4).costNs == 40000, "table: the best within 4 channels is Tree/LL/2");
  check(table_best(c, 0, 32).costNs == 60000 && table_best(c, 0, 32).algorithm == -1,
        "table: with everything marked -1 the default is the best");
  table_free(&t);
}

static void test_bad_tables(void) {
  static const struct { const char *text, *named; } bad[] = {
      {"", "line 1"},
      {HEADER, "no row"},
      {"a,b\n", "line 1"},
      {ROW "AllReduce,1024,default,-,-,-,50\n", "header"},
      {HEADER ROW "AllReduce,1024,default,-,-,-\n", "line 2: want 13"},
      {HEADER ROW "AllReduce,1024,default,-,-,-,-5\n", "median_us"},
      {HEADER ROW "AllReduce,1024,default,-,-,-,nan\n", "median_us"},
      {HEADER ROW "AllReduce,0,default,-,-,-,5\n", "bytes"},
      {HEADER ROW "AllReduce,-1,default,-,-,-,5\n", "bytes"},
      {HEADER ROW "AllReduce,1024,collective,Star,LL,1,5\n", "algorithm"},
      {HEADER ROW "AllReduce,1024,collective,Ring,LL64,1,5\n", "protocol"},
      {HEADER ROW "AllReduce,1024,collective,Ring,LL,65,5\n", "channels"},
      {HEADER "m,2.28.9,1,1,nvlink,quiet,AllReduce,1024,default,-,-,-,50\n", "nranks"},
      {HEADER "m,2.28.9,4,3,nvlink,quiet,AllReduce,1024,default,-,-,-,50\n", "nnodes"},
      {HEADER ROW "AllReduce,1024,default,-,-,-,5\nm,2.28.9,8,2,socket,quiet,AllReduce,1024,default,-,-,-,5\n",
       "differs"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct table t;
    char error[256] = "";
    int refused = parse(&t, bad[i].text, error) != 0;
    check(refused && strstr(error, bad[i].named) != NULL, "bad table %zu: want a message on \"%s\", got \"%s\"", i,
          bad[i].named, error);
    if (!refused) table_free(&t);
  }
}

static uint32_t allowed(int nRanks, int nNodes, int ll128Net, const char *algo, const char *proto, int func) {
  struct tuning t;
  float costs[NUM_ALGOS][NUM_PROTOS];
  char error[256] = "";
  int ok = tuning_init(&t, nRanks, nNodes, 32, ll128Net, algo, proto, error, sizeof error) == 0;
  check(ok, "tuning: %s", error);
  if (!ok) return 0;
  tuning_cost_table(&t, func, 1 << 20, 1, costs);
  for (int a = 0; a < NUM_ALGOS; a++)
    for (int p = 0; p < NUM_PROTOS; p++)
      check(costs[a][p] == -1.0f || (costs[a][p] > 1 && costs[a][p] < 1e5), "tuning: cost %g us is no time",
            costs[a][p]);
  return tuning_allowed(costs);
}

enum { TREE = 7 << 3 * ALGO_TREE, RING = 7 << 3 * ALGO_RING, LL128 = 0x92492 & (TREE | RING), PAT_SIMPLE = 4 << 18 };

static void test_marks(void) {
  static const struct { int nRanks, nNodes, ll128Net; const char *algo, *proto; int func; uint32_t want; } cases[] = {
      {8, 1, 0, NULL, NULL, FUNC_ALLREDUCE, TREE | RING},
      {8, 1, 0, NULL, NULL, FUNC_ALLGATHER, RING},
      {8, 1, 0, NULL, NULL, FUNC_REDUCESCATTER, RING},
      {8, 1, 0, NULL, NULL, FUNC_BROADCAST, RING},
      {8, 1, 0, NULL, NULL, FUNC_REDUCE, RING},
      {4, 2, 0, NULL, NULL, FUNC_ALLREDUCE, (TREE | RING) & ~LL128},
      {4, 2, 1, NULL, NULL, FUNC_ALLREDUCE, TREE | RING},
      {4, 2, 0, NULL, NULL, FUNC_ALLGATHER, RING & ~LL128},
      {4, 4, 0, NULL, NULL, FUNC_ALLGATHER, (RING & ~LL128) | PAT_SIMPLE},
      {4, 4, 0, NULL, NULL, FUNC_ALLREDUCE, (TREE | RING) & ~LL128},
      {8, 1, 0, "Tree", NULL, FUNC_ALLREDUCE, TREE},
      {8, 1, 0, "^Ring", NULL, FUNC_ALLREDUCE, TREE},
      {8, 1, 0, "ring;allreduce:tree", NULL, FUNC_ALLREDUCE, TREE},
      {8, 1, 0, "ring;allreduce:tree", NULL, FUNC_ALLGATHER, RING},
      {4, 2, 0, NULL, "LL128", FUNC_ALLREDUCE, LL128}, /* a user may force what NCCL would not choose */
      {8, 1, 0, "Ring", "^Simple,LL", FUNC_ALLREDUCE, RING & LL128},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t got = allowed(cases[i].nRanks, cases[i].nNodes, cases[i].ll128Net, cases[i].algo, cases[i].proto,
                           cases[i].func);
    check(got == cases[i].want, "marks %zu: entries that are not -1: %#x, want %#x", i, got, cases[i].want);
  }
  struct tuning t;
  char error[256] = "";
  check(tuning_init(&t, 8, 1, 32, 0, "Star", NULL, error, sizeof error) != 0 && strstr(error, "NCCL_ALGO") != NULL,
        "tuning: NCCL_ALGO=Star must be refused by name, got \"%s\"", error);
}

static void test_select(void) {
  struct tuning t;
  float costs[NUM_ALGOS][NUM_PROTOS];
  char error[256];
  int algo, proto, nWarps;
  (void)tuning_init(&t, 8, 1, 24, 0, NULL, NULL, error, sizeof error);
  tuning_cost_table(&t, FUNC_ALLREDUCE, 256 << 20, 1, costs);
  check(tuning_select(costs, &algo, &proto) == 0 && algo == ALGO_RING && proto == PROTO_SIMPLE,
        "select: NCCL runs AllReduce 256 MiB on 8 GPUs as Ring/Simple, got %d/%d", algo, proto);
  tuning_cost_table(&t, FUNC_ALLREDUCE, 1024, 1, costs);
  check(tuning_select(costs, &algo, &proto) == 0 && proto == PROTO_LL, "select: 1 KiB runs on LL, got %d/%d", algo,
        proto);
  costs[ALGO_TREE][PROTO_SIMPLE] = 0.0f; /* how a tuner chooses */
  check(tuning_select(costs, &algo, &proto) == 0 && algo == ALGO_TREE && proto == PROTO_SIMPLE, "select: 0 must win");
  for (int i = 0; i < NUM_ALGOS * NUM_PROTOS; i++) costs[i / NUM_PROTOS][i % NUM_PROTOS] = i % 2 ? -1.0f : NAN;
  check(tuning_select(costs, &algo, &proto) != 0, "select: nothing but -1 and NaN must fail");
  check(tuning_channels(&t, ALGO_RING, PROTO_SIMPLE, 1024, &nWarps) == 1, "channels: 1 KiB Ring/Simple runs on one");
  check(tuning_channels(&t, ALGO_RING, PROTO_SIMPLE, 256 << 20, &nWarps) == 24, "channels: 256 MiB takes all");
}

static void test_schedule(void) {
  struct tuning t;
  char error[256];
  (void)tuning_init(&t, 8, 1, 24, 0, NULL, NULL, error, sizeof error);
  struct tuning_task one = {.count = 256, .elementSize = 4, .nMaxChannels = 24};
  tuning_schedule(&t, FUNC_ALLREDUCE, PROTO_SIMPLE, &one, 1);
  check(one.nChannels == 1 && one.channelLo == 0, "schedule: 1 KiB has traffic for one channel, got %d", one.nChannels);
  struct tuning_task big = {.count = 64 << 20, .elementSize = 4, .nMaxChannels = 16};
  tuning_schedule(&t, FUNC_ALLREDUCE, PROTO_SIMPLE, &big, 1);
  check(big.nChannels == 16, "schedule: 256 MiB runs on all 16 channels asked for, got %d", big.nChannels);
  for (uint64_t seed = 0; seed < 3000; seed++) {
    struct tuning_task tasks[8];
    uint64_t draw = rng_mix(seed);
    int n = 1 + (int)(draw % 8), func = FUNC_ALLGATHER + (int)(draw >> 8) % 3, ok = 1;
    size_t count = (size_t)1 << (draw >> 16) % 28;
    for (int i = 0; i < n; i++)
      tasks[i] = (struct tuning_task){.count = count + (draw >> 24) % count, 
                                      .elementSize = func == FUNC_ALLGATHER ? 1 : 4,
                                      .nMaxChannels = 1 + (int)(draw >> 52) % 24};
    tuning_schedule(&t, func, (int)(draw >> 60) % NUM_PROTOS, tasks, n);
    for (int i = 0; i < n; i++)
      ok &= tasks[i].nChannels >= 1 && tasks[i].channelLo >= 0 && tasks[i].channelLo + tasks[i].nChannels <= 24;
    check(ok, "schedule: seed %llu puts a task outside of the 24 channels", (unsigned long long)seed);
  }
}

static void test_timeline(void) {
  struct timeline_model m = {.seed = 7, .noise = 0.05, .skewUs = 2, .lateShare = 0.01, .lateUs = 100, .gapUs = 5,
                             .counterFrac = 0.5};
  struct timeline lines[4];
  double sum = 0, squares = 0;
  const int calls = 20000;
  for (int r = 0; r < 4; r++) timeline_init(&lines[r], &m, r);
  check(lines[0].gpuBase != lines[1].gpuBase, "timeline: GPUs must not share a clock");
  for (int s = 0; s < calls; s++) {
    struct timing t[4];
    uint64_t shortest = UINT64_MAX;
    int same = 1;
    for (int r = 0; r < 4; r++) {
      t[r] = timeline_call(&lines[r], &m, 3, (uint64_t)s, r, 4, (uint64_t)s, 1024, 100000);
      same &= t[r].signalEndNs == t[0].signalEndNs && t[r].counterEndNs == t[0].counterEndNs;
      if (t[r].signalEndNs - t[r].arrivalNs < shortest) shortest = t[r].signalEndNs - t[r].arrivalNs;
    }
    if (!same) check(0, "timeline: ranks compute different ends for call %d", s);
    double z = log((double)shortest / 100000);
    sum += z;
    squares += z * z;
  }
  double mean = sum / calls, sigma = sqrt(squares / calls - mean * mean);
  /* standard errors: 0.05/sqrt(20000) = 0.00035 for the mean, 0.05/sqrt(40000) = 0.00025 for sigma */
  check(fabs(mean) < 0.002 && fabs(sigma - 0.05) < 0.0015,
        "timeline: the last rank's log duration has mean %.4f and sigma %.4f, want 0 and 0.05", mean, sigma);
}

/* What each fault adds to the shortest signal and counter durations of one call of 100 us and 2 MiB. */
static void test_faults(void) {
  static const struct { const char *text; double signal, counter, skew; } cases[] = {
      {"remote-side:20", 20, 0, 0},      {"backend-fallback:5@0", 5, 5, 0}, {"congestion:3", 6, 6, 0},
      {"counter:10", 0, 10, 0},          {"slow-rank=2:50", 0, 0, 50},      {"remote-side:20@5", 0, 0, 0},
      {"remote-side:20@0-2", 20, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct timeline_model m = {.seed = 1, .counterFrac = 0.5, .numFaults = 1};
    const char *wrong = timeline_parse_fault(cases[i].text, &m.faults[0]);
    check(wrong == NULL, "fault %s: %s", cases[i].text, wrong == NULL ? "" : wrong);
    double signal = INFINITY, counter = INFINITY, longest = 0;
    for (int r = 0; r < 4; r++) {
      struct timeline line;
      timeline_init(&line, &m, r);
      struct timing t = timeline_call(&line, &m, 0, 0, r, 4, 1, 2 << 20, 100000);
      signal = fmin(signal, (double)(t.signalEndNs - t.arrivalNs) / 1000);
      counter = fmin(counter, (double)(t.counterEndNs - t.arrivalNs) / 1000);
      longest = fmax(longest, (double)(t.signalEndNs - t.arrivalNs) / 1000);
    }
    check(fabs(signal - 100 - cases[i].signal) < 0.01 && fabs(counter - 50 - cases[i].counter) < 0.01 &&
              fabs(longest - signal - cases[i].skew) < 0.01,
          "fault %s: signal %.2f counter %.2f skew %.2f us", cases[i].text, signal, counter, longest - signal);
  }
  static const char *const bad[] = {"", "slow", "remote-side", "remote-side:-1", "slow-rank:5", "congestion=1:5",
                                    "counter:5@", "counter:5@9-3", "counter:5x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct fault f;
    check(timeline_parse_fault(bad[i], &f) != NULL, "fault \"%s\" must be refused", bad[i]);
  }
}

static void test_paths(void) {
  char out[16];
  check(log_path("r%r.log", 12, out, sizeof out) == 0 && strcmp(out, "r12.log") == 0, "path: %%r must be the rank");
  check(log_path("plain", 1, out, sizeof out) == 0 && strcmp(out, "plain") == 0, "path: without %%r it stays");
  check(log_path("a-name-that-is-too-long%r", 1, out, sizeof out) != 0, "path: too long must fail");
}

int selftest_run(FILE *out) {
  report = out;
  test_table();
  test_bad_tables();
  test_marks();
  test_select();
  test_schedule();
  test_timeline();
  test_faults();
  test_paths();
  fprintf(out, "%d checks, %d failures\n", checks, failures);
  return failures;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * getCollInfo's latency: RANKS processes at once while a publisher changes plans 1,000 times a second, next to a plugin
 * that does nothing, in the same processes and the same loop.
 *
 * Method: serialised time-stamp counter before and after every single call, into a histogram of ticks; the counter's
 * own cost, measured in the same loop as two readings with nothing between, is subtracted at its median (so what is
 * left of its jitter is charged to the plugin). Ticks are converted with CLOCK_MONOTONIC over the whole run. Filling
 * NCCL's table is not timed. Calls with more than MAX_TICKS count as that long. Nothing is left out: a preempted call
 * is a slow call.
 *
 *   bench RANKS CALLS_PER_RANK
 */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xbe7c4ull
#define MAX_TICKS (1 << 16)
#define WARM_UP 20000
#define MAX_AHEAD 512 /* calls */

#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t ticks(void) {
  unsigned aux;
  uint64_t t = __rdtscp(&aux); /* after everything before it */
  _mm_lfence();                /* before everything after it */
  return t;
}
#else
static inline uint64_t ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif

enum { TIMER, EMPTY, PLUGIN, KINDS };
struct shared {
  uint64_t histogram[KINDS][MAX_TICKS + 1];
  uint64_t progress[DYN_MAX_RANKS];
  uint64_t plans, published, ready, go;
};
static struct shared *shared;

static int empty_get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                               int numProto, int regBuff, int *nChannels) {
  (void)context, (void)collective, (void)nBytes, (void)numPipeOps, (void)costs, (void)numAlgo, (void)numProto;
  (void)regBuff, (void)nChannels;
  return DYN_NCCL_SUCCESS;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void count(uint32_t *histogram, uint64_t t) { histogram[t < MAX_TICKS ? t : MAX_TICKS]++; }

/* Real ranks wait for each other in their collectives. Without that, on a machine with fewer cores than ranks, those
 * that do not run hold the change log full and no plan changes. Not timed. */
static void wait_for_others(int rank, int ranks, uint64_t calls) {
  __atomic_store_n(&shared->progress[rank], calls, __ATOMIC_RELAXED);
  for (int i = 0; i < ranks; i++)
    while (__atomic_load_n(&shared->progress[i], __ATOMIC_RELAXED) + MAX_AHEAD < calls) sched_yield();
}

static void rank_process(int rank, int ranks, uint64_t calls) {
  static uint32_t histogram[KINDS][MAX_TICKS + 1];
  /* Through a pointer that the compiler cannot see through, as NCCL calls. */
  int (*volatile empty)(void *, int, size_t, int, float **, int, int, int, int *) = empty_get_coll_info;
  int (*volatile plugin)(void *, int, size_t, int, float **, int, int, int, int *) = ncclTunerPlugin_v6.getCollInfo;
  void *context;
  dyn_comm_open(COMM_ID, ranks, 1, rank, test_log); /* with the profiler half's share of the work */
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, (size_t)ranks, 1, test_log, NULL, NULL) == 0, "init");
  struct dyn_comm *comm = context;
  check(comm->record, "not joined: %s", test_last_message());
  uint64_t version = 0, plans = 0, random = (uint64_t)rank + 1;
  __atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST)) usleep(100);
  for (uint64_t i = 0; i < calls + WARM_UP; i++) {
    if (i == WARM_UP) memset(histogram, 0, sizeof histogram);
    if (i % (MAX_AHEAD / 4) == 0) wait_for_others(rank, ranks, i);
    uint64_t shape = test_random(&random);
    int collective = (int)(i % 5), channels = 0;
    size_t bytes = (size_t)1 << (8 + i / 5 % 20);
    float costs[21];
    for (int c = 0; c < 21; c++) costs[c] = (float)(1 + (shape >> c & 15));
    uint64_t t0 = ticks();
    uint64_t t1 = ticks();
    plugin(context, collective, bytes, 1, (float **)costs, 7, 3, 0, &channels);
    uint64_t t2 = ticks();
    empty(context, collective, bytes, 1, (float **)costs, 7, 3, 0, &channels);
    uint64_t t3 = ticks();
    count(histogram[TIMER], t1 - t0);
    count(histogram[PLUGIN], t2 - t1);
    count(histogram[EMPTY], t3 - t2);
    if (comm->plan.version != version) plans++, version = comm->plan.version;
  }
  __atomic_store_n(&shared->progress[rank], UINT64_MAX / 2, __ATOMIC_RELAXED);
  for (int k = 0; k < KINDS; k++)
    for (int t = 0; t <= MAX_TICKS; t++)
      if (histogram[k][t]) __atomic_fetch_add(&shared->histogram[k][t], histogram[k][t], __ATOMIC_RELAXED);
  __atomic_fetch_add(&shared->plans, plans, __ATOMIC_RELAXED);
  ncclTunerPlugin_v6.finalize(context);
  _exit(0);
}

static void publisher_process(void) {
  struct publisher p;
  struct dyn_plan plan;
  uint64_t random = 1, next;
  while (!publisher_open(&p, COMM_ID)) usleep(500);
  while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST)) usleep(100);
  next = now_ns();
  for (;;) {
    plan_random(&plan, &random, (uint32_t)test_random(&random));
    if (publisher_publish(&p, &plan)) __atomic_fetch_add(&shared->published, 1, __ATOMIC_RELAXED);
    next += 1000000;
    uint64_t now = now_ns();
    if (now < next) usleep((useconds_t)((next - now) / 1000));
  }
}

static uint64_t percentile(const uint64_t *histogram, double p) {
  uint64_t total = 0, seen = 0;
  for (int t = 0; t <= MAX_TICKS; t++) total += histogram[t];
  for (int t = 0; t <= MAX_TICKS; t++)
    if ((seen += histogram[t]) >= (uint64_t)(p * (double)total)) return (uint64_t)t;
  return MAX_TICKS;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 8, status;
  uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 0) : 300000;
  check(ranks > 0 && ranks <= DYN_MAX_RANKS && calls > 0, "usage: bench RANKS CALLS_PER_RANK");
  test_directory();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(shared != MAP_FAILED, "mmap");
  for (int i = 0; i < ranks; i++)
    if (fork() == 0) rank_process(i, ranks, calls);
  pid_t publisher = fork();
  if (publisher == 0) publisher_process();
  while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < (uint64_t)ranks) {
    pid_t ended = waitpid(-1, &status, WNOHANG);
    check(ended == 0, "a process ended too early, status %x", status);
    usleep(1000);
  }
  uint64_t startNs = now_ns(), startTicks = ticks();
  __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
  for (int ended = 0; ended < ranks; ended++)
    check(waitpid(0, &status, 0) > 0 && status == 0, "a process ended with status %x", status);
  uint64_t ns = now_ns() - startNs, passed = ticks() - startTicks;
  kill(publisher, SIGKILL);
  waitpid(publisher, &status, 0);
  test_remove_directory();
  double nsPerTick = (double)ns / (double)passed, timer = (double)percentile(shared->histogram[TIMER], 0.5);
  double figures[KINDS][3];
  static const double at[] = {0.5, 0.99, 0.999};
  for (int k = 0; k < KINDS; k++)
    for (int p = 0; p < 3; p++)
      figures[k][p] = ((double)percentile(shared->histogram[k], at[p]) - (k == TIMER ? 0 : timer)) * nsPerTick;
  double seconds = (double)ns / 1e9;
  printf("{\"bench\":\"getCollInfo\",\"ranks\":%d,\"cpus\":%ld,\"calls\":%" PRIu64 ",\"seconds\":%.2f,", ranks,
         sysconf(_SC_NPROCESSORS_ONLN), calls * (uint64_t)ranks, seconds);
  printf("\"plansPublishedPerSecond\":%.0f,\"plansRunPerRankPerSecond\":%.0f,", (double)shared->published / seconds,
         (double)shared->plans / ranks / seconds);
  printf("\"p50Ns\":%.1f,\"p99Ns\":%.1f,\"p999Ns\":%.1f,", figures[PLUGIN][0], figures[PLUGIN][1], figures[PLUGIN][2]);
  printf("\"emptyP50Ns\":%.1f,\"emptyP99Ns\":%.1f,\"emptyP999Ns\":%.1f,", figures[EMPTY][0], figures[EMPTY][1],
         figures[EMPTY][2]);
  printf("\"timerP50Ns\":%.1f,\"timerP999Ns\":%.1f,\"method\":\"rdtscp and lfence around each call, median timer cost "
         "subtracted\"}\n", figures[TIMER][0], figures[TIMER][2]);
  return 0;
}

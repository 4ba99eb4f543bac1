/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that CUDA events time, in front of a fake NCCL and a fake driver; this program plays the plugin:
 *   test_probe FOLDER
 */
#include "probe_rig.h"

/* ---- tests, each in a process of its own ---- */

#include "probe_which.h"

static void exact(void) {
  everything_is_over();
  uint64_t start = 0, offset = 0;
  for (uint64_t i = 0; i < 100; i++) {
    uint64_t told = now_ns(), waits = 1000 + i * 7, takes = 5000 + i * 13;
    call(i, 0, waits, takes);
    struct dyn_sample s = await();
    start += waits;
    CHECK(s.seq == i && s.flags == DYN_SAMPLE_EVENT_TIMED && s.algorithm == 1);
    CHECK(s.signalNs == takes && s.counterNs == takes, "%u of %lu ns", s.signalNs, (unsigned long)takes);
    if (i == 0) offset = s.startNs - start;
    CHECK(s.startNs - offset == start, "%lu and not %lu", (unsigned long)(s.startNs - offset), (unsigned long)start);
    start += takes;
    uint64_t end = s.startNs + s.signalNs;
    CHECK(s.clockNs + end >= told && s.clockNs + end <= now_ns(), "the host's clock when it was seen");
    CHECK(preload->call()->timed == NULL && preload->call()->depth == 0);
  }
  CHECK(atomic_load(&gpu->made) < 2 * 100, "events are used again");
}

/* A call that kept its host for long has no times, but is told: with its number, once, and when the stream has reached it. */
static void slow(void) {
  everything_is_over();
  for (uint64_t i = 0; i < 20; i++) {
    bool late = i % 3 == 1;
    plan = (struct plan){.asks = 1, .takes = 100, .seq = i, .slowNs = late ? 500001 : 500000};
    CHECK(all_reduce(FAKE_STREAM(0)) == SUCCESS);
    struct dyn_sample s = await();
    CHECK(s.seq == i && s.algorithm == 1 && s.flags == (late ? DYN_SAMPLE_EVENT_TIMED | DYN_SAMPLE_UNTIMED : DYN_SAMPLE_EVENT_TIMED), "call %lu: flags %x", (unsigned long)i, s.flags);
    CHECK(late ? s.signalNs + s.counterNs + s.startNs + s.clockNs == 0 : s.signalNs == 100, "%u ns", s.signalNs);
  }
  none();
  atomic_store(&gpu->now, 0);
  plan = (struct plan){.asks = 1, .seq = 20, .slowNs = 1000000};
  CHECK(all_reduce(FAKE_STREAM(0)) == SUCCESS);
  none();
  close_ring(); /* nobody's, as all of this time */
  open_ring();
  everything_is_over();
  call(21, 0, 10, 100);
  CHECK(await().seq == 21);
  none();
}

/* Calls of which nothing comes. */
static void dropped(void) {
  everything_is_over();
  for (int way = 0; way < 9; way++) {
    const int what = way % 4;
    plan = (struct plan){.asks = what == 0 ? 0 : what == 1 ? 2 : 1, .result = what == 2 ? 1 : what == 3 ? IN_PROGRESS : 0};
    if (way >= 4) plan.slowNs = 1000000;
    if (way == 8) plan.asks = 1, atomic_store(&gpu->context[0], 0);
    CHECK(all_reduce(FAKE_STREAM(0)) == plan.result);
    none();
  }
  unsigned records = atomic_load(&gpu->records);
  atomic_store(&gpu->context[0], 0x77);
  plan = (struct plan){.asks = 1};
  CHECK(all_reduce(FAKE_CAPTURED) == SUCCESS && all_reduce(FAKE_UNKNOWN) == SUCCESS);
  for (int ends = 0; ends < 2; ends++) { /* in a group that fails, or runs nothing */
    CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
    CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
    CHECK(all_reduce(FAKE_STREAM(0)) == SUCCESS);
    plan.result = 5;
    CHECK(find(ends == 0 ? "ncclGroupEnd" : "ncclGroupSimulateEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 5);
    plan.result = SUCCESS;
  }
  CHECK(find("ncclSend")(1, 2, 3, 4, 5, FAKE_STREAM(0), 0, 0, 0) == SUCCESS, "no tuner is asked about it");
  CHECK(atomic_load(&gpu->records) == records + 1, "the group that fails has begun");
  none();
  plan.result = 5;
  CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 5); /* no group */
  plan = (struct plan){.asks = 1, .takes = 5};
  frozenNs = now_ns();
  CHECK(find("ncclBcast")(1, 2, 3, 4, 5, FAKE_STREAM(0), 0, 0, 0) == SUCCESS); /* calls ncclBroadcast: one call */
  frozenNs = 0;
  CHECK(await().signalNs == 5);
  none();
}

/* Ends come in any order over streams, and in order on one. */
static void late(void) {
  atomic_store(&gpu->now, 1);
  for (uint64_t i = 0; i < 12; i++) call(i, (int)(i % 3), 1000 * (i % 3 + 1), 100); /* 1, 2 and 3 us apart */
  none();
  uint64_t seen = 0;
  for (uint64_t us = 1; us <= 20; us++) {
    atomic_store(&gpu->now, us * 1000 + 500);
    uint64_t over = 0;
    for (uint64_t i = 0; i < 12; i++)
      over |= (uint64_t)((i / 3 + 1) * ((i % 3 + 1) * 1000 + 100) <= us * 1000 + 500) << i;
    while (seen != over) {
      uint64_t seq = await().seq;
      CHECK(over & ~seen & UINT64_C(1) << seq, "call %lu at %lu us", (unsigned long)seq, (unsigned long)us);
      CHECK(seq < 3 || seen >> (seq - 3) & 1, "call %lu before the one before it", (unsigned long)seq);
      seen |= UINT64_C(1) << seq;
    }
    none();
  }
}

/* The GPU is far behind: calls beyond the pool run untimed, and later ones are timed again. */
static void exhausted(void) {
  for (int lap = 0; lap < 3; lap++) {
    atomic_store(&gpu->now, 0);
    for (uint64_t i = 0; i < POOL + 88; i++) call(i, 0, 10, 10);
    everything_is_over();
    for (uint64_t i = 0; i < POOL; i++) CHECK(await().seq == i, "%lu", (unsigned long)i);
    none();
    CHECK(lost() == 88u * (unsigned)(lap + 1), "%lu", (unsigned long)lost());
  }
  CHECK(atomic_load(&gpu->made) <= 2 * POOL + 4, "%u events", atomic_load(&gpu->made));
}

/* Over a minute of GPU time instants stay right, although an event's time is a float. */
static void long_run(void) {
  uint64_t start = 0, offset = 0, random = 88172645463325252u;
  everything_is_over();
  for (uint64_t i = 0; i < 4000; i++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    uint64_t waits = random % 30000000, takes = random % 1000000 + 1;
    call(i, 0, waits, takes);
    struct dyn_sample s = await();
    start += waits;
    if (i == 0) offset = s.startNs - start;
    int64_t off = (int64_t)(s.startNs - offset - start);
    CHECK(off > -1000 && off < 1000, "after %lu ns off by %ld", (unsigned long)start, (long)off);
    CHECK(s.signalNs == takes, "%u of %lu", s.signalNs, (unsigned long)takes);
    start += takes;
  }
}

/* Whatever the driver refuses: the program's call is made, and that context is left alone from then on. */
static void refused(void) {
  for (int fail = FAKE_FAIL_CREATE; fail <= FAKE_FAIL_CONTEXT; fail++) {
    atomic_store(&gpu->failing, 0);
    atomic_store(&gpu->contextId, 100ull + (unsigned)fail); /* another context at the same address */
    everything_is_over();
    meet(0);
    if (fail > FAKE_FAIL_CREATE) {
      call(1, 0, 10, 100);
      CHECK(await().seq == 1, "case %d", fail);
    }
    unsigned failed = atomic_load(&gpu->failed);
    atomic_store(&gpu->failing, fail);
    call(2, 0, 10, 100);
    for (int i = 0; i < 20000 && atomic_load(&gpu->failed) == failed; i++) sleep_us(100); /* the poller takes its time */
    CHECK(atomic_load(&gpu->failed) > failed, "case %d: nothing was refused", fail);
    none();
    atomic_store(&gpu->failing, 0);
    unsigned records = atomic_load(&gpu->records), queries = atomic_load(&gpu->queries);
    call(3, 0, 10, 100);
    none();
    CHECK(atomic_load(&gpu->records) == records && atomic_load(&gpu->queries) == queries, "case %d", fail);
  }
}

/* The plugin goes while calls are in flight: neither its ring nor the driver is touched, and the next one's calls are
 * timed as ever; what is left of the old ones is none of its own. */
static void plugin_goes(void) {
  atomic_store(&gpu->now, 0);
  for (int lap = 0; lap < 50; lap++) {
    for (uint64_t i = 0; i < 10; i++) call(i, 0, 10, 10);
    if (lap % 2) sleep_us(200);
    close_ring();
    unsigned queries = atomic_load(&gpu->queries);
    sleep_us(500);
    CHECK(atomic_load(&gpu->queries) == queries, "the driver is asked without a plugin");
    open_ring();
    call(100, 1, 10, 20);
    everything_is_over();
    CHECK(await().seq == 100, "lap %d", lap);
    struct dyn_sample s;
    CHECK(!pop(&s));
    atomic_store(&gpu->now, 0);
  }
}

/* ... and at once comes again, so that the old calls end under the new ring. */
static void plugin_comes_back(void) {
  atomic_store(&gpu->now, 0);
  for (uint64_t i = 0; i < 10; i++) call(i, 0, 10, 10);
  pthread_mutex_lock(&preload->roundLock);
  preload->lease++;
  pthread_mutex_unlock(&preload->roundLock);
  call(100, 0, 10, 10);
  everything_is_over();
  CHECK(await().seq == 100);
  none();
}

/* A communicator of several goes, and then the context that it was on: nothing of it is asked after any more. */
static void context_goes(void) {
  int settled = 0;
  everything_is_over();
  for (int lap = 0; lap < 100; lap++) {
    for (uint64_t i = 0; i < 20; i++) call(i, 0, 10, 10);
    plan = (struct plan){.result = SUCCESS};
    uint64_t before = now_ns();
    CHECK(find(lap % 2 ? "ncclCommDestroy" : "ncclCommAbort")(1, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
    if (now_ns() - before > 19000000) { /* too busy a machine: it has given up waiting */
      for (uint64_t i = 0; i < 20; i++) await();
      continue;
    }
    settled++;
    unsigned queries = atomic_load(&gpu->queries);
    sleep_us(300);
    CHECK(atomic_load(&gpu->queries) == queries, "lap %d", lap);
    struct dyn_sample s;
    for (uint64_t i = 0; i < 20; i++) CHECK(pop(&s) && s.seq == i);
    atomic_store(&gpu->contextId, 1000u + (unsigned)(lap / 10)); /* at the same address */
    if (lap % 10 == 0) meet(0);
  }
  CHECK(settled > 0);
  atomic_store(&gpu->now, 0);
  call(1, 0, 10, 10);
  plan = (struct plan){.result = SUCCESS};
  uint64_t began = now_ns();
  CHECK(find("ncclCommDestroy")(1, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS && now_ns() - began < 500000000, "another's call goes on");
}

#include "probe_ends.h"

/* A program that makes contexts anew all the time (cudaDeviceReset): calls in the newest are timed as in the first. */
static void new_contexts(void) {
  everything_is_over();
  for (uint64_t i = 0; i < 3 * 32 + 5; i++) {
    atomic_store(&gpu->contextId, 5000u + (unsigned)i); /* at the same address */
    meet(0);
    if (i % 3 == 1) atomic_store(&gpu->failing, FAKE_FAIL_CREATE); /* and this one refuses */
    call(i, 0, 10, 100);
    atomic_store(&gpu->failing, 0);
    if (i % 3 == 1) none();
    else CHECK(await().seq == i, "context %lu", (unsigned long)i);
  }
}

/* A stream that nobody has seen may not have had work yet, and an event would be its first. */
static void first_calls(void) {
  everything_is_over();
  atomic_store(&gpu->contextId, 4000);
  for (int stream = 0; stream < 3; stream++) {
    unsigned records = atomic_load(&gpu->records);
    call(1, stream, 10, 100);
    none();
    CHECK(atomic_load(&gpu->records) == records && lost() == 0, "stream %d", stream);
    call(2, stream, 10, 100);
    CHECK(await().seq == 2 && atomic_load(&gpu->records) == records + 2);
  }
}

/* Another device's context is current, and another stream's calls are its own. */
static void contexts(void) {
  everything_is_over();
  for (uint64_t i = 0; i < FAKE_STREAMS; i++) atomic_store(&gpu->context[i], 0x77 + i % 4);
  meet_all();
  for (uint64_t i = 0; i < 64; i++) {
    call(i, (int)(i % FAKE_STREAMS), 10, i + 1);
    struct dyn_sample s = await();
    CHECK(s.seq == i && s.signalNs == i + 1);
  }
}

#define CALLERS 4
#define ROUNDS 20000
#define LATER (UINT64_C(1) << 40) /* than all of these: a call when they are over */
static atomic_int running = CALLERS;
static void *caller(void *number) {
  for (uint64_t n = 0; n < ROUNDS; n++) {
    int stream = (int)((uintptr_t)number + n % 2);
    call(n | (uint64_t)(uintptr_t)number << 32, stream, 100, 100);
    if (n % 64 == 0) sleep_us(200);
  }
  atomic_fetch_sub(&running, 1);
  return NULL;
}
/* Threads call while the GPU gets on, is read, and the plugin's window opens and closes. */
static void threads(void) {
  pthread_t callers[CALLERS];
  struct dyn_sample s;
  uint64_t seen = 0, next[CALLERS][2] = {{0}};
  for (uintptr_t i = 0; i < CALLERS; i++) CHECK(pthread_create(&callers[i], NULL, caller, (void *)i) == 0);
  for (uint64_t n = 0; atomic_load(&running) > 0; n++) {
    atomic_fetch_add(&gpu->now, 20000);
    atomic_store(&preload->timing, n % 5 > 0);
    for (; pop(&s); seen++) {
      uint64_t who = s.seq >> 32, nth = s.seq & UINT32_MAX;
      CHECK(who < CALLERS && nth < ROUNDS && nth >= next[who][nth % 2], "%lx", (unsigned long)s.seq);
      CHECK(s.signalNs >= 100, "%u ns", s.signalNs); /* streams are shared: others' work may be in between */
      next[who][nth % 2] = nth + 1; /* a thread's calls on one stream come in order, each once */
    }
    sleep_us(50);
  }
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  everything_is_over();
  atomic_store(&preload->timing, 1);
  /* Where the poller had no CPU for a while all probes are out still, and a call is not timed. */
  unsigned later = 0;
  for (s.seq = 0; s.seq < LATER; later++) {
    CHECK(later < 20000, "no sample in twenty seconds");
    call(LATER + later, 0, 1, 1);
    sleep_us(1000);
    for (; s.seq < LATER && pop(&s); seen++) continue;
  }
  printf("{\"probes\":{\"calls\":%d,\"timed\":%lu,\"dropped\":%lu}}\n", CALLERS * ROUNDS, (unsigned long)seen,
         (unsigned long)lost());
  CHECK(seen > 100 && seen + lost() <= CALLERS * ROUNDS + later);
}

/* What a call costs more: the fake driver's functions are nearly nothing, so this is our own part. */
static void cost(void) {
  double ns[3];
  everything_is_over();
  for (int way = 0; way < 3; way++) {
    atomic_store(&preload->mask, way == 0 ? NULL : &mask);
    atomic_store(&preload->timing, way == 2);
    function f = find("ncclAllReduce");
    plan = (struct plan){.asks = 1, .takes = 1};
    last()->inside = inside;
    uint64_t best = UINT64_MAX, began;
    for (int lap = 0; lap < 20; lap++) {
      began = now_ns();
      for (int n = 0; n < 400; n++) f(1, 2, 3, 4, 5, 6, FAKE_STREAM(0), 0, 0);
      if (now_ns() - began < best) best = now_ns() - began;
      sleep_us(2000);
    }
    ns[way] = (double)best / 400;
  }
  printf("{\"wrapperNs\":{\"noPlugin\":%.1f,\"off\":%.1f,\"timing\":%.1f}}\n", ns[0], ns[1], ns[2]);
}

int main(int argc, char **argv) {
  CHECK(argc > 1, "the folder of the fakes");
  open_fakes(argv[1]);
  static const struct { const char *name; void (*test)(void); } tests[] = {
      {"off", off}, {"watched", watched}, {"resting", resting}, {"exact", exact}, {"slow", slow}, {"dropped", dropped}, {"late", late}, {"exhausted", exhausted},
      {"long run", long_run}, {"refused", refused}, {"plugin goes", plugin_goes}, {"plugin comes back", plugin_comes_back},
      {"context goes", context_goes}, {"first calls", first_calls},
      {"forked", forked}, {"exits", exits}, {"exits from a hang", exits_from_a_hang}, {"contexts", contexts}, {"new contexts", new_contexts},
      {"threads", threads}, {"cost", cost}};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (argc < 3 || strcmp(argv[2], tests[i].name) == 0) run(tests[i].name, tests[i].test);
  return 0;
}

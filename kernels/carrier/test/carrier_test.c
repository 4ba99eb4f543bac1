/* SPDX-License-Identifier: Apache-2.0
 *
 * carrier_test traffic RANKS PUTS [SEED]   PUTS random puts and signals, all data compared when its signal is seen
 * carrier_test killed [SEED [US]]          the same of three ranks, one of which is killed; US: and slow until then
 * carrier_test left | refusals | unwanted | latency | bandwidth | dead
 * carrier_test file | going PATH           faults on purpose that come and go in a file there; going: memory goes under puts (going.c)
 * carrier_test gets RANKS GETS [SEED]      version 14 alone: trips.c
 * carrier_test behind | announced | full | reset   behind.c
 * All of it plays version 11 of the tables, or 14 with TABLE=14. CARRIER: the library. DYNAMICCL_CARRIER=1.
 */
#include "../../../nccltuner/preload/test/naps.h"
#include "behind.h"
#include "going.h"
#include "trips.h"
#include "traffic.h"

static struct traffic traffic;
static uint64_t seed = 1, gets;

/* One of them not at its memory's beginning. */
static void make_windows(size_t bytes) {
  for (int w = 0; w < WINDOWS; w++) {
    comm.receive[w] = (struct window){.at = (unsigned char *)device_memory(bytes + 8192, w + 1) + 4096, .bytes = bytes};
    comm.send[w] = (struct window){.at = device_memory(bytes, w + 1), .bytes = bytes};
  }
}

static void register_windows(void) {
  for (int w = 0; w < WINDOWS; w++) register_window(&comm.receive[w], NCCL_PTR_CUDA, 0), register_window(&comm.send[w], NCCL_PTR_CUDA, 0);
}

static void start(void) {
  initialise();
  connect_all();
  make_windows(traffic_bytes());
  register_windows();
  meet();
}

/* More memory comes and goes while the proxy runs, and so do contexts. */
static void register_more(void) {
  for (int round = 0; round < 20; round++) {
    static struct window more;
    void *contexts;
    if (round == 0) more = (struct window){.at = device_memory(1 << 20, 1), .bytes = 1 << 20};
    if (rma != NULL) CHECK(rma->createContext(comm.colls[0], &(ncclRmaConfig_v14_t){1 + round % 3, -1, 1}, &contexts) == 0);
    register_window(&more, NCCL_PTR_CUDA, 0);
    if (rma != NULL) CHECK(rma->destroyContext(contexts) == 0);
    deregister_window(&more);
  }
}

static void tell(void) {
  if (rank == 0)
    printf("%d ranks: rank 0 put %lu times, %lu of it with signals, %lu done, %lu failed\n", numRanks, (long)atomic_load(&traffic.puts),
           (long)atomic_load(&traffic.signals), (long)atomic_load(&traffic.done), (long)atomic_load(&traffic.failed));
  fflush(stdout);
}

static void all_traffic(void) {
  pthread_t thread;
  start();
  traffic_start(&traffic, &thread);
  register_more();
  traffic_check(&traffic);
  meet(); /* NCCL's proxies run until the communicator goes */
  uint64_t all = traffic.each * CONTEXTS * (uint64_t)numRanks;
  while (atomic_load(&traffic.done) < all) usleep(100);
  atomic_store(&traffic.stop, 1);
  pthread_join(thread, NULL);
  CHECK(atomic_load(&traffic.puts) == all && atomic_load(&traffic.failed) == 0);
  CHECK(atomic_load(&warnings) == 1, "%s", lastWarning); /* development only */
  for (int c = 0; c < CONTEXTS; c++)
    for (int s = numRanks; s < SIGNALS; s++) CHECK(comm.signals[c][s] == 0);
  for (int w = 0; w < WINDOWS; w++) deregister_window(&comm.receive[w]), deregister_window(&comm.send[w]);
  tell();
  finish();
}

/* Version 11 has nobody to ask. */
static int has_error(int expected) {
  bool error = expected;
  if (rma != NULL) CHECK(rma->queryLastError(comm.contexts, &error) == 0);
  return error == expected;
}

/* What was on its way to the dead rank ends in an error, once said; the others' puts all arrive. */
static void with_killed(void) {
  pthread_t thread;
  start();
  traffic_start(&traffic, &thread);
  traffic_check(&traffic);
  uint64_t living = traffic.each * CONTEXTS * (uint64_t)(numRanks - 1);
  while (atomic_load(&traffic.done) + atomic_load(&traffic.failed) < atomic_load(&traffic.puts) || atomic_load(&warnings) < 2) usleep(1000);
  usleep(50000);
  atomic_fetch_add(&shared->ended, 1);
  while (atomic_load(&shared->ended) < numRanks - 1) usleep(1000); /* who closes is gone, too */
  atomic_store(&traffic.stop, 1);
  pthread_join(thread, NULL);
  char named[64];
  snprintf(named, sizeof named, "rank %d (process ", traffic.dies);
  CHECK(atomic_load(&warnings) == 2 && strstr(lastWarning, named) != NULL && strstr(lastWarning, "died") != NULL, "%d: %s", atomic_load(&warnings),
        lastWarning);
  CHECK(atomic_load(&traffic.puts) >= living);
  void *request = NULL;
  int result = post_put(0, 0, comm.send[0].regions[0], 8, 0, comm.receive[0].regions[0], traffic.dies, &request);
  CHECK(result == ncclRemoteError && request == NULL && atomic_load(&warnings) == 2 && has_error(1));
  tell();
  finish();
}

/* ---- single puts ---- */

static int put(int target, size_t bytes, size_t at, uint64_t signal, void **request) {
  void *source = comm.send[0].regions[0], *dest = comm.receive[0].regions[0];
  if (signal == 0) return post_put(0, at, source, bytes, at, dest, target, request);
  return post_signal(0, at, source, bytes, at, dest, target, 8 * (uint64_t)rank, comm.signalRegions[0], signal, NCCL_NET_SIGNAL_OP_ADD, request);
}

static uint64_t ms_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* How long until it is done, at most so long; -1: it is not. */
static int wait_ms(void *request, uint64_t most) {
  uint64_t from = ms_now();
  int done = 0;
  while (!done && ms_now() - from < most) {
    CHECK(poll_request(0, request, &done) == 0 && progress(0) == 0);
    usleep(100);
  }
  return done ? (int)(ms_now() - from) : -1;
}

static void idle(int ms) {
  for (uint64_t from = ms_now(); ms_now() - from < (uint64_t)ms; usleep(100)) CHECK(progress(0) == 0);
}

/* Rank 1 closes and goes on living: silence until somebody puts to it. */
static void one_leaves(void) {
  start();
  if (rank == 1) {
    finish();
    meet(), meet();
    return;
  }
  meet();
  idle(100);
  CHECK(atomic_load(&warnings) == 1 && has_error(0), "%s", lastWarning);
  void *request;
  CHECK(put(1, 8, 0, 0, &request) == ncclRemoteError && put(1, 8, 0, 0, &request) == ncclRemoteError);
  CHECK(atomic_load(&warnings) == 2 && strstr(lastWarning, "rank 1") != NULL && strstr(lastWarning, "closed the communicator") != NULL);
  CHECK(put(0, 8, 0, 0, &request) == 0 && wait_ms(request, 5000) >= 0);
  meet();
  finish();
}

static void refusals(void) {
  void *request, *region, *unused;
  start();
  if (rma != NULL) rma_refusals();
  CHECK(net->listen(NULL, 0, &request, &unused) == ncclInvalidUsage && strstr(lastWarning, "GIN alone") != NULL);
  size_t bytes = comm.receive[0].bytes;
  CHECK(put(0, 64, bytes - 63, 0, &request) == ncclInvalidArgument && put(0, 64, UINT64_MAX - 8, 0, &request) == ncclInvalidArgument);
  CHECK(put(9, 8, 0, 0, &request) == ncclInvalidArgument);
  CHECK(put(0, 64, bytes - 64, 0, &request) == 0 && wait_ms(request, 5000) >= 0);
  CHECK(post_put(0, 0, comm.send[0].regions[0], 8, 0, comm.inlineRegions[0], 1 - rank, &request) == ncclInvalidArgument);
  CHECK(post_signal(0, 0, NULL, 0, 0, NULL, 0, 0, comm.signalRegions[0], 1, 4, &request) == ncclInvalidArgument);
  CHECK(post_signal(0, 0, NULL, 0, 0, NULL, 0, 0, NULL, 1, 1, &request) == ncclInvalidArgument);
  meet();
  /* Memory without a handle on one rank: refused on both. */
  unsigned char *bare = device_memory(1 << 20, rank == 0 ? 0 : 1);
  CHECK(try_register(comm.colls[1], bare, 1 << 20, NCCL_PTR_CUDA, 0, &region) != 0 && region == NULL);
  CHECK(strstr(lastWarning, "rank 0's memory has no handle") != NULL, "%s", lastWarning);
  meet();
  /* A rank that does not come: an end, and its name. */
  if (rank == 0) {
    setenv("DYNAMICCL_CARRIER_SETUP_S", "1", 1);
    uint64_t from = ms_now();
    CHECK(try_register(comm.colls[1], comm.send[0].at, 4096, NCCL_PTR_CUDA, 0, &region) != 0);
    CHECK(ms_now() - from < 15000 && strstr(lastWarning, "rank 1: nothing within 1 s") != NULL, "%s", lastWarning);
    void *listener, *coll, *handles[2] = {shared->handles[0], shared->handles[1]};
    from = ms_now();
    CHECK(TABLE(listen)(comm.ginInstance, 0, handles[0], &listener) == 0 && TABLE(connect)(NULL, handles, 2, 0, listener, &coll) != 0);
    CHECK(ms_now() - from < 15000 && strstr(lastWarning, "rank 1 did not connect within 1 s") != NULL, "%s", lastWarning);
    memset(handles[0], 0, NCCL_NET_HANDLE_MAXSIZE);
    CHECK(TABLE(connect)(NULL, handles, 2, 1, listener, &coll) != 0 && strstr(lastWarning, "rank 0 gave no handle") != NULL, "%s", lastWarning);
    TABLE(closeListen)(listener);
  }
  meet();
  finish();
}

static void there_and_back(void) {
  start();
  rma_there_and_back(seed, gets);
  meet();
  finish();
}

/* By the network's table of version 11, too, which says why. */
static void refused(const char *why) {
  void *context;
  if (rma == NULL) CHECK(net->init(&context, 1, NULL, NULL, NULL) == ncclInvalidUsage && strstr(lastWarning, why) != NULL, "%s", lastWarning);
  CHECK(TABLE(init)(&context, 1, NULL) == ncclInvalidUsage && strstr(lastWarning, why) != NULL, "%s", lastWarning);
}

static void unwanted(void) {
  void *context;
  quiet = 1;
  setenv("DYNAMICCL_CARRIER", "1", 1);
  initialise();
  unsetenv("DYNAMICCL_CARRIER");
  refused("DYNAMICCL_CARRIER=1");
  setenv("DYNAMICCL_CARRIER", "1", 1);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  refused("CUDA_DEVICE_MAX_CONNECTIONS=32");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "15", 1);
  refused("CUDA_DEVICE_MAX_CONNECTIONS=32");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
  setenv("DYNAMICCL_CARRIER_GBS", "much", 1);
  CHECK(TABLE(init)(&context, 1, NULL) == ncclInvalidUsage && strstr(lastWarning, "GBS=much") != NULL);
}

static uint64_t own_signal(int source) { return __atomic_load_n(&comm.signals[0][source], __ATOMIC_ACQUIRE); }

/* 50 ms: set by main. */
static void latency(void) {
  void *request;
  start();
  uint64_t from = ms_now();
  CHECK(put(1 - rank, 4096, 0, 5, &request) == 0);
  CHECK(wait_ms(request, 5000) >= 0);
  CHECK(ms_now() - from >= 49, "%ld ms", (long)(ms_now() - from));
  while (own_signal(1 - rank) != 5) idle(1);
  meet();
  finish();
}

/* 0.01 GB/s: 16 puts of 64 KiB take 105 ms. */
static void bandwidth(void) {
  void *requests[16];
  start();
  uint64_t from = ms_now();
  for (int i = 0; i < 16; i++) CHECK(put(1 - rank, 64 << 10, 0, 0, &requests[i]) == 0);
  for (int i = 0; i < 16; i++) CHECK(wait_ms(requests[i], 5000) >= 0);
  CHECK(ms_now() - from >= 104, "%ld ms", (long)(ms_now() - from));
  meet();
  finish();
}

/* Rank 2 of 3 is dead: set by main. */
static void dead(void) {
  void *toDead, *toLiving;
  start();
  CHECK(put(2, 64, 0, 1, &toDead) == 0 && put(0, 64, 0, 1, &toLiving) == 0);
  CHECK((wait_ms(toLiving, rank == 2 ? 200 : 5000) >= 0) == (rank != 2));
  CHECK(wait_ms(toDead, 200) < 0);
  meet();
  idle(20);
  CHECK(rank == 2 || own_signal(2) == 0);
  CHECK(rank != 0 || (own_signal(0) == 1 && own_signal(1) == 1));
  meet();
  finish();
}

/* As many lines were said as there were changes, and the last is this one. */
static void faults_are(const char *lines, const char *said) {
  const int before = atomic_load(&warnings);
  write_faults(lines);
  for (uint64_t from = ms_now(); atomic_load(&warnings) == before && ms_now() - from < 20000;) idle(1);
  idle(50); /* to be said once */
  CHECK(atomic_load(&warnings) == before + 1 && strstr(lastWarning, said) != NULL, "%d lines, the last: %s", atomic_load(&warnings) - before, lastWarning);
  meet();
}

/* A latency of 1 ms by variable: set by main. */
static void fault_file(void) {
  void *request, *requests[16];
  quiet = 1;
  start();
  idle(60);
  CHECK(atomic_load(&warnings) == 2 && strstr(lastWarning, "LATENCY_US=1000") != NULL, "%s", lastWarning);
  faults_are("latency_us 60000\n", "faults on purpose: 60000 us later");
  const uint64_t asked = ms_now();
  CHECK(put(1 - rank, 64, 0, 0, &request) == 0 && wait_ms(request, 5000) >= 0);
  CHECK(ms_now() - asked >= 59, "%ld ms", (long)(ms_now() - asked));
  faults_are("# slow\n\n gbs 0.01 \nlatency_us 0\n", "faults on purpose: 0.01 GB/s");
  const uint64_t from = ms_now();
  for (int i = 0; i < 16; i++) CHECK(put(1 - rank, 64 << 10, 0, 0, &requests[i]) == 0);
  for (int i = 0; i < 16; i++) CHECK(wait_ms(requests[i], 5000) >= 0);
  CHECK(ms_now() - from >= 104, "%ld ms", (long)(ms_now() - from));
  faults_are("dead_rank 1", "faults on purpose: 1000 us later, rank 1 dead");
  memset(comm.send[0].at, 0x5a, 64);
  CHECK(put(1 - rank, 64, 0, 1, &request) == 0 && wait_ms(request, 150) < 0);
  faults_are("dead_rank none\n", "\"dead_rank none\" is no fault: nothing is changed");
  CHECK(wait_ms(request, 50) < 0 && own_signal(1 - rank) == 0);
  memset(comm.receive[0].at, 0, 64);
  faults_are(NULL, "faults on purpose: 1000 us later");
  CHECK(wait_ms(request, 5000) >= 0);
  while (own_signal(1 - rank) != 1) idle(1);
  CHECK(memcmp(comm.receive[0].at, comm.send[0].at, 64) == 0);
  meet();
  finish();
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "", *table = getenv("TABLE");
  playRma = table != NULL && strcmp(table, "14") == 0;
  setenv("DYNAMICCL_CARRIER_SETUP_S", "20", 0);
  naps_may_take(200);
  if (strcmp(what, "traffic") == 0 && count > 3) {
    int ranks = atoi(arguments[2]);
    if (count > 4) seed = strtoul(arguments[4], NULL, 0);
    traffic = (struct traffic){.seed = seed, .each = (strtoul(arguments[3], NULL, 0) + (unsigned)(CONTEXTS * ranks * ranks) - 1) / (unsigned)(CONTEXTS * ranks * ranks), .dies = -1};
    play(what, ranks, -1, all_traffic);
  } else if (strcmp(what, "gets") == 0 && count > 3 && playRma) {
    if (count > 4) seed = strtoul(arguments[4], NULL, 0);
    gets = strtoul(arguments[3], NULL, 0) / (unsigned)atoi(arguments[2]);
    play(what, atoi(arguments[2]), -1, there_and_back);
  } else if (strcmp(what, "killed") == 0) {
    if (count > 2) seed = strtoul(arguments[2], NULL, 0);
    traffic = (struct traffic){.seed = seed, .each = 1000, .dies = 2, .diesAt = 500 + seed % 1000, .slowUs = count > 3 ? (unsigned)atoi(arguments[3]) : 0};
    play(what, 3, 2, with_killed);
  } else if (strcmp(what, "left") == 0) {
    play(what, 2, -1, one_leaves);
  } else if (strcmp(what, "refusals") == 0) {
    quiet = 1;
    play(what, 2, -1, refusals);
  } else if (strcmp(what, "unwanted") == 0) {
    play(what, 1, -1, unwanted);
  } else if (strcmp(what, "latency") == 0) {
    setenv("DYNAMICCL_CARRIER_LATENCY_US", "50000", 1);
    play(what, 2, -1, latency);
  } else if (strcmp(what, "bandwidth") == 0) {
    setenv("DYNAMICCL_CARRIER_GBS", "0.01", 1);
    play(what, 2, -1, bandwidth);
  } else if (strcmp(what, "file") == 0 && count > 2) {
    setenv("DYNAMICCL_CARRIER_LATENCY_US", "1000", 1);
    setenv("DYNAMICCL_CARRIER_FAULTS", arguments[2], 1);
    play(what, 2, -1, fault_file);
  } else if (strcmp(what, "going") == 0 && count > 2) {
    setenv("DYNAMICCL_CARRIER_FAULTS", arguments[2], 1);
    play_going();
  } else if (strcmp(what, "behind") == 0) {
    play_behind();
  } else if (strcmp(what, "announced") == 0) {
    play_announced();
  } else if (strcmp(what, "full") == 0) {
    quiet = 1;
    play_full();
  } else if (strcmp(what, "reset") == 0) {
    play_reset();
  } else if (strcmp(what, "dead") == 0) {
    setenv("DYNAMICCL_CARRIER_DEAD_RANK", "2", 1);
    play(what, 3, -1, dead);
  } else {
    fprintf(stderr, "see the top of %s\n", __FILE__);
    return 2;
  }
  printf("%s: passed, seed %lu\n", what, (long)seed);
  return 0;
}

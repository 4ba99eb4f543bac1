/* SPDX-License-Identifier: Apache-2.0
 *
 * card_test traffic RANKS OPERATIONS [SEED]   random operations, all data compared when its signal is seen; memory comes and goes
 * card_test killed [SEED [US]]                the same of three ranks, one of which is killed; US: and slow until then
 * card_test lives | locked | waits | reset | refused | start | latency | bandwidth | dead | file PATH | types KERNEL, and with TABLE=14 shared | several PATH | leaves | left | unfit
 * It plays NCCL 2.28.9, or 2.32.3 with TABLE=14. CARRIER: the library, with a file of the kernel beside it; types: KERNEL says whether there is one (1 or 0).
 */
#include "../../../../nccltuner/preload/test/naps.h"
#include "card_locked.h"
#include "card_places.h"
#include "card_reset.h"
#include "card_shared.h"
#include "card_traffic.h"

static struct traffic traffic;
static uint64_t seed = 1;
static unsigned slowUs;

/* ---- traffic ---- */

/* Memory that is registered while kernels run and others post: each rank puts into the next one's. */
static void use_more(int round) {
  const int context = round % CONTEXTS, next = (rank + 1) % numRanks;
  static struct memory more;
  if (round == 0) more = (struct memory){.at = device_memory(BYTES, 1), .bytes = BYTES};
  memset(more.at, round, BYTES);
  memory_register(&more);
  struct posting p = card_put(context, next, &more, 0, &more, BYTES / 2, 5000);
  memset(more.at, 100 + round + rank, 5000);
  card_signal(&p, context, next, SPARE, 1);
  card_count(&p, context, SPARE);
  post(&p);
  await_signal(context, SPARE, (uint64_t)(round / CONTEXTS) + 1);
  await_counter(context, SPARE, (uint64_t)(round / CONTEXTS) + 1);
  const int before = (rank + numRanks - 1) % numRanks;
  for (size_t i = 0; i < BYTES / 2; i++) CHECK(more.at[BYTES / 2 + i] == (i < 5000 ? 100 + round + before : round), "round %d, byte %zu", round, i);
  meet(); /* as NCCL's windows: collective */
  memory_deregister(&more);
}

static void tell(void) {
  if (rank == 0)
    printf("%d ranks: rank 0 posted %lu, %lu MiB, %lu sources changed at once, %lu got back\n", numRanks, (long)atomic_load(&traffic.posted),
           (long)atomic_load(&traffic.bytes) >> 20, (long)atomic_load(&traffic.changed), (long)atomic_load(&traffic.got));
  fflush(stdout);
}

static void all_traffic(void) {
  cards_begin();
  traffic_start(&traffic);
  for (int round = 0; round < 20; round++) use_more(round);
  traffic_join(&traffic);
  meet(); /* NCCL's threads run until the communicator goes */
  for (int c = 0; c < CONTEXTS; c++) CHECK(!card_failed(c));
  CHECK(atomic_load(&warnings) == 1, "%s", lastWarning); /* development only */
  memory_deregister(&traffic.receive);
  memory_deregister(&traffic.send);
  memory_deregister(&traffic.back);
  tell();
  cards_finish();
}

/* Until its death is heard of, a put to the dead rank still writes into its memory. */
static void await_refusal(int context) {
  const struct posting p = card_put(context, traffic.dies, &traffic.send, 0, &traffic.receive, 0, 64);
  for (uint64_t from = ms_now(), done = 0; done != GDAKI_DONE_BADLY; usleep(100)) {
    CHECK(ms_now() - from < 20000, "a put to a dead rank was done");
    const uint64_t index = post(&p);
    poster_flush(p.queue);
    done = p.queue->done.at[(index % p.queue->count + 1) * p.queue->done.bytes - 1] >> 4;
  }
}

/* What was on its way to the dead rank ends in errors, which NCCL can ask for; the others' all arrives. */
static void with_killed(void) {
  cards_begin();
  traffic_start(&traffic);
  traffic_join(&traffic);
  atomic_fetch_add(&shared->ended, 1);
  while (atomic_load(&shared->ended) < numRanks - 1) usleep(1000); /* who closes is gone, too */
  for (int c = 0; c < CONTEXTS; c++) {
    await_refusal(c);
    CHECK(card_failed(c), "NCCL is told of no error");
  }
  for (uint64_t from = ms_now(); atomic_load(&warnings) < 2 + CONTEXTS; usleep(100)) CHECK(ms_now() - from < 20000, "%s", lastWarning);
  CHECK(atomic_load(&warnings) == 2 + CONTEXTS, "%d: %s", atomic_load(&warnings), lastWarning); /* development only, who died, and each context's failure */
  CHECK(strstr(lastWarning, "a peer is gone") != NULL, "%s", lastWarning);
  tell();
  cards_finish();
}

/* ---- single cases ---- */

/* The kernel ends when nobody posts, so that a program's cudaDeviceSynchronize and cudaFree come to an end, and comes again. */
static void lives(void) {
  cards_begin_small();
  for (uint64_t round = 1; round <= 5; round++) {
    for (int c = 0; c < CONTEXTS; c++) {
      struct posting p = card_put(c, 1 - rank, &near, 0, &far, 0, 70000);
      card_signal(&p, c, 1 - rank, 0, 1);
      card_count(&p, c, 0);
      post(&p);
    }
    for (int c = 0; c < CONTEXTS; c++) await_signal(c, 0, round), await_counter(c, 0, round);
    CHECK(memcmp(far.at, near.at, 70000) == 0 && far.at[70000] == 0);
    const uint64_t from = ms_now();
    CHECK(cudaSynchronize() == 0 && ms_now() - from < 10000, "%ld ms", (long)(ms_now() - from));
    meet();
  }
  void *extra = device_memory(BYTES, 2);
  struct posting p = card_put(0, 1 - rank, &near, 0, &far, 0, 64);
  for (int i = 0; i < 100; i++) post(&p);
  CHECK(cudaFree((uint64_t)(uintptr_t)extra) == 0 && poster_flush(p.queue));
  meet();
  cards_finish();
}

/* A put of rank 0 that does not lie within the memory: an error there, and only there. */
static void refused(void) {
  cards_begin_small();
  if (rank == 0) {
    struct posting p = card_put(1, 1, &near, 0, &far, BYTES - 63, 64);
    card_signal(&p, 1, 1, 0, 1);
    post(&p);
    poster_flush(p.queue);
    CHECK(p.queue->done.at[p.queue->done.bytes - 1] >> 4 == GDAKI_DONE_BADLY && p.queue->done.at[2 * p.queue->done.bytes - 1] >> 4 == GDAKI_DONE_BADLY);
    await_error(1);
    CHECK(!card_failed(0));
    for (uint64_t from = ms_now(); atomic_load(&warnings) < 2; usleep(100)) CHECK(ms_now() - from < 20000, "nothing was said");
    CHECK(strstr(lastWarning, "rank 0 to rank 1: a put or signal is not within registered memory") != NULL, "%s", lastWarning);
  }
  meet();
  struct posting p = card_put(0, 1 - rank, &near, 0, &far, 0, 64);
  card_signal(&p, 0, 1 - rank, 0, 1);
  post(&p);
  await_signal(0, 0, 1);
  CHECK(memcmp(far.at, near.at, 64) == 0 && signal_value(1, 0) == 0 && (rank == 0 || !card_failed(1)));
  for (size_t i = 64; i < BYTES; i++) CHECK(far.at[i] == 0, "byte %zu", i);
  meet();
  cards_finish();
}

/* CUDA starts kernels of rank 0 no more: an error there on each context, said with CUDA's name for it. Those that are there stay for a
 * second, and what is asked for behind them never arrives. The other rank goes on, and all of it ends. */
static void cannot_start(void) {
  enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */
  cards_begin_small();
  struct posting p = card_put(0, 1 - rank, &near, 0, &far, 0, 64);
  card_signal(&p, 0, 1 - rank, 0, 1);
  post(&p);
  await_signal(0, 0, 1);
  meet();
  if (rank == 0) {
    cardsResult(OUT_OF_MEMORY);
    for (int c = 0; c < CONTEXTS; c++) {
      struct posting own = card_put(c, 0, &near, 0, &far, 8192, 8); /* or nobody starts it, where a second has passed since it was used */
      post(&own);
      await_error(c);
    }
    CHECK(strstr(lastWarning, "the kernel's start") != NULL && strstr(lastWarning, "CUDA_ERROR_OUT_OF_MEMORY") != NULL, "%s", lastWarning);
    CHECK(cudaSynchronize() == 0);
  }
  meet();
  struct posting lost = card_put(1, 1 - rank, &near, 0, &far, 4096, 64);
  card_signal(&lost, 1, 1 - rank, 0, 1);
  post(&lost);
  if (rank == 0) {
    await_signal(1, 0, 1); /* the other rank's */
    CHECK(memcmp(far.at + 4096, near.at, 64) == 0);
  } else {
    cards_turn();
    CHECK(signal_value(1, 0) == 0 && far.at[4096] == 0 && !card_failed(0) && !card_failed(1));
  }
  meet();
  cards_finish();
}

static int round_ms(int target, size_t bytes, int times) {
  static uint64_t seen;
  const uint64_t from = ms_now();
  for (int i = 0; i < times; i++) {
    struct posting p = card_put(0, target, &near, 0, &far, 0, bytes);
    card_count(&p, 0, SPARE);
    post(&p);
  }
  await_counter(0, SPARE, seen += (uint64_t)times);
  return (int)(ms_now() - from);
}

/* 50 ms: set by main. */
static void latency(void) {
  cards_begin_small();
  const int took = round_ms(1 - rank, 4096, 1);
  CHECK(took >= 49, "%d ms", took);
  meet();
  cards_finish();
}

/* 0.01 GB/s: 16 puts of 64 KiB take 105 ms. */
static void bandwidth(void) {
  cards_begin_small();
  const int took = round_ms(1 - rank, 64 << 10, 16);
  CHECK(took >= 104, "%d ms", took);
  meet();
  cards_finish();
}

/* Rank 2 of 3 is dead: set by main. Nothing comes of what is for it, not even an error, and what is for others is done. */
static void dead(void) {
  cards_begin_small();
  struct posting p = card_put(0, 2, &near, 0, &far, 0, 64), other = card_put(0, 0, &near, 0, &far, 4096, 64);
  card_signal(&p, 0, 2, rank, 1), card_count(&p, 0, 0);
  card_signal(&other, 0, 0, rank, 1);
  post(&p), post(&other);
  if (rank != 2) CHECK(poster_flush(other.queue));
  usleep(100000);
  CHECK(counter_value(0, 0) == 0 && !card_failed(0));
  CHECK(cudaSynchronize() == 0); /* and it keeps no kernel */
  meet();
  CHECK(rank == 2 || signal_value(0, 2) == 0);
  CHECK(rank != 0 || (signal_value(0, 0) == 1 && signal_value(0, 1) == 1));
  CHECK(rank != 2 || (signal_value(0, 0) == 0 && signal_value(0, 1) == 0));
  meet();
  cards_finish();
}

static void faults_are(const char *lines, const char *said) {
  const int before = atomic_load(&warnings);
  write_faults(lines);
  for (uint64_t from = ms_now(); atomic_load(&warnings) == before && ms_now() - from < 20000;) usleep(1000);
  usleep(50000); /* to be said once */
  cards_turn();
  CHECK(atomic_load(&warnings) == before + 1 && strstr(lastWarning, said) != NULL, "%d lines, the last: %s", atomic_load(&warnings) - before, lastWarning);
  meet();
}

static void fault_file(void) {
  cards_begin_small();
  faults_are("latency_us 60000\n", "faults on purpose: 60000 us later");
  int took = round_ms(1 - rank, 64, 1);
  CHECK(took >= 59, "%d ms", took);
  faults_are("gbs 0.01\n", "faults on purpose: 0.01 GB/s");
  took = round_ms(1 - rank, 64 << 10, 16);
  CHECK(took >= 104, "%d ms", took);
  faults_are("dead_rank 1\n", "faults on purpose: rank 1 dead");
  struct posting p = card_put(0, 1 - rank, &near, 0, &far, BYTES / 2, 64);
  card_signal(&p, 0, 1 - rank, 0, 1), card_count(&p, 0, 0);
  post(&p);
  usleep(100000);
  CHECK(counter_value(0, 0) == 0 && signal_value(0, 0) == 0 && far.at[BYTES / 2] == 0 && !card_failed(0));
  faults_are(NULL, "faults on purpose: none");
  await_signal(0, 0, 1), await_counter(0, 0, 1);
  CHECK(memcmp(far.at + BYTES / 2, near.at, 64) == 0);
  meet();
  cards_finish();
}

/* Which type there is without DYNAMICCL_CARRIER_TYPE, and with it. */
static int kernelIsThere;
static void types(void) {
  ncclNetProperties_v11_t props;
  void *listener, *handles[1] = {shared->handles[0]}, *coll, *context = NULL, *device = NULL;
  deviceType = kernelIsThere ? NCCL_NET_DEVICE_GIN_GDAKI : NCCL_NET_DEVICE_GIN_PROXY;
  initialise();
  CHECK((strstr(lastWarning, "a kernel that plays the network card") != NULL) == kernelIsThere, "%s", lastWarning);
  setenv("DYNAMICCL_CARRIER_TYPE", "proxy", 1);
  CHECK(gin->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && props.netDeviceVersion == NCCL_GIN_PROXY_VERSION);
  setenv("DYNAMICCL_CARRIER_TYPE", "gdaki", 1);
  CHECK(gin->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_GIN_GDAKI && props.netDeviceVersion == NCCL_GIN_GDAKI_VERSION);
  CHECK(gin->listen(comm.ginInstance, 0, handles[0], &listener) == 0 && gin->connect(comm.ginContext, handles, 1, 0, listener, &coll) == 0);
  CHECK((gin->createContext(coll, CARD_SIGNALS, CARD_COUNTERS, &context, &device) == 0) == kernelIsThere);
  CHECK(kernelIsThere || (strstr(lastWarning, "the kernel is not to be read") != NULL && context == NULL), "%s", lastWarning);
  CHECK(gin->closeListen(listener) == 0 && gin->destroyContext(context) == 0 && gin->closeColl(coll) == 0);
}

static void play_traffic(const char *what, int ranks, uint64_t each, int dies) {
  traffic = (struct traffic){.seed = seed, .each = each, .dies = dies, .diesAt = 200 + seed % 1000, .slowUs = slowUs};
  traffic_share(&traffic);
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0); /* so that kernels come and go */
  play(what, ranks, dies, dies < 0 ? all_traffic : with_killed);
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "", *table = getenv("TABLE");
  playGdaki = table != NULL && strcmp(table, "14") == 0;
  deviceType = NCCL_NET_DEVICE_GIN_GDAKI;
  setenv("DYNAMICCL_CARRIER_SETUP_S", "20", 0);
  naps_may_take(500);
  if (strcmp(what, "traffic") == 0 && count > 3) {
    const unsigned ranks = (unsigned)atoi(arguments[2]);
    if (count > 4) seed = strtoul(arguments[4], NULL, 0);
    play_traffic(what, (int)ranks, strtoul(arguments[3], NULL, 0) / (CONTEXTS * POSTERS * ranks * ranks) + 1, -1);
  } else if (strcmp(what, "killed") == 0) {
    if (count > 2) seed = strtoul(arguments[2], NULL, 0);
    if (count > 3) slowUs = (unsigned)atoi(arguments[3]);
    play_traffic(what, 3, 300, 2);
  } else if (strcmp(what, "lives") == 0) {
    setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
    play(what, 2, -1, lives);
  } else if (strcmp(what, "crowd") == 0) {
    setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
    play_crowd();
  } else if (strcmp(what, "sharing") == 0) {
    quiet = oneGpu = 1;
    play_sharing();
  } else if (strcmp(what, "locked") == 0) {
    play_locked();
  } else if (strcmp(what, "expected") == 0) {
    play_expected();
  } else if (strcmp(what, "replayed") == 0) {
    play_replayed();
  } else if (strcmp(what, "waits") == 0) {
    play_waits();
  } else if (strcmp(what, "reset") == 0) {
    play_reset();
  } else if (strcmp(what, "refused") == 0) {
    quiet = 1;
    play(what, 2, -1, refused);
  } else if (strcmp(what, "start") == 0) {
    quiet = 1;
    setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
    play(what, 2, -1, cannot_start);
  } else if (strcmp(what, "latency") == 0) {
    setenv("DYNAMICCL_CARRIER_LATENCY_US", "50000", 1);
    play(what, 2, -1, latency);
  } else if (strcmp(what, "bandwidth") == 0) {
    setenv("DYNAMICCL_CARRIER_GBS", "0.01", 1);
    play(what, 2, -1, bandwidth);
  } else if (strcmp(what, "dead") == 0) {
    setenv("DYNAMICCL_CARRIER_DEAD_RANK", "2", 1);
    setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
    play(what, 3, -1, dead);
  } else if (strcmp(what, "file") == 0 && count > 2) {
    quiet = 1;
    setenv("DYNAMICCL_CARRIER_FAULTS", arguments[2], 1);
    play(what, 2, -1, fault_file);
  } else if (strcmp(what, "shared") == 0 && playGdaki) {
    play_shared();
  } else if (strcmp(what, "leaves") == 0 && playGdaki) {
    play_leaves();
  } else if (strcmp(what, "several") == 0 && playGdaki && count > 2) {
    setenv("DYNAMICCL_CARRIER_FAULTS", arguments[2], 1);
    play_several();
  } else if (strcmp(what, "left") == 0 && playGdaki) {
    play_left();
  } else if (strcmp(what, "unfit") == 0 && playGdaki) {
    play_unfit();
  } else if (strcmp(what, "types") == 0 && count > 2) {
    quiet = 1;
    kernelIsThere = atoi(arguments[2]);
    play(what, 1, -1, types);
  } else {
    fprintf(stderr, "see the top of %s\n", __FILE__);
    return 2;
  }
  printf("%s: passed, seed %lu\n", what, (long)seed);
  return 0;
}

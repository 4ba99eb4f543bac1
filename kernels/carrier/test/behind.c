/* SPDX-License-Identifier: Apache-2.0 */
#include "behind.h"

#include <dlfcn.h>
#include <time.h>

#include "../expected.h"
#include "rig.h"

enum { ROUNDS = 12, BYTES = 1 << 20, FEW = 70000, SILENCE_US = 1300000 /* longer than a card stays behind the last request */ };

static struct window from, to;
static int (*cudaStream)(void **stream, unsigned flags), (*cudaHold)(void *stream, const uint32_t *word), (*cudaFree)(uint64_t at);
static int (*cudaContext)(void **context), (*cudaSetContext)(void *context);
static void *stream, *context, *spare;
static uint32_t released; /* what the program's kernel waits for */
static atomic_bool freed;

static void find_all(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&cudaStream = dlsym(driver, "cuStreamCreate");
  *(void **)&cudaHold = dlsym(driver, "fakegpu_hold");
  *(void **)&cudaFree = dlsym(driver, "cuMemFree_v2");
  *(void **)&cudaContext = dlsym(driver, "cuCtxGetCurrent");
  *(void **)&cudaSetContext = dlsym(driver, "cuCtxSetCurrent");
  CHECK(cudaHold != NULL && cudaContext(&context) == 0 && cudaStream(&stream, 0) == 0);
}

static void start(void) {
  alarm(120); /* what is looked for here are hangs */
  initialise();
  connect_all();
  find_all();
  from = (struct window){.at = device_memory(BYTES, 2), .bytes = BYTES};
  to = (struct window){.at = device_memory(BYTES, 1), .bytes = BYTES};
  spare = device_memory(BYTES, 2);
  register_window(&from, NCCL_PTR_CUDA, 0);
  register_window(&to, NCCL_PTR_CUDA, 0);
  meet();
}

static void end(void) {
  meet();
  deregister_window(&from);
  deregister_window(&to);
  finish();
}

static uint64_t ms_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void await_signal(int c, uint64_t value) {
  for (uint64_t began = ms_now(); __atomic_load_n(&comm.signals[c][1 - rank], __ATOMIC_ACQUIRE) != value; usleep(20))
    CHECK(ms_now() - began < 20000 && progress(c) == 0, "signal %lu of context %d is not here", (long)value, c);
}

/* On all contexts: what is large by several blocks. */
static void exchange(uint64_t round) {
  void *requests[CONTEXTS];
  int done = 0;
  memset(from.at, (int)round, BYTES);
  for (int c = 0; c < CONTEXTS; c++)
    CHECK(post_signal(c, 0, from.regions[c], FEW, (uint64_t)c * FEW, to.regions[c], 1 - rank, 8 * (uint64_t)rank, comm.signalRegions[c], 1, NCCL_NET_SIGNAL_OP_INC, &requests[c]) == 0);
  for (int c = 0; c < CONTEXTS; c++, done = 0)
    while (!done) CHECK(poll_request(c, requests[c], &done) == 0 && progress(c) == 0);
  for (int c = 0; c < CONTEXTS; c++) await_signal(c, round);
  for (int c = 0; c < CONTEXTS; c++) CHECK(to.at[c * FEW] == (unsigned char)round && to.at[(c + 1) * FEW - 1] == (unsigned char)round);
  meet();
}

static void *free_spare(void *unused) {
  CHECK(cudaSetContext(context) == 0 && cudaFree((uint64_t)(uintptr_t)spare) == 0);
  atomic_store(&freed, true);
  return unused;
}

/* Behind a kernel of the program's. */
static void take_lock(pthread_t *program) {
  CHECK(pthread_create(program, NULL, free_spare, NULL) == 0);
  usleep(20000);
}

static void give_lock(pthread_t program) {
  CHECK(!atomic_load(&freed), "nobody had the lock");
  __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
  CHECK(pthread_join(program, NULL) == 0);
}

/* A program's thread keeps CUDA's lock as long as a kernel of its waits for other ranks: what they put arrives. */
static void behind(void) {
  pthread_t program;
  start();
  exchange(1);
  CHECK(cudaHold(stream, &released) == 0);
  take_lock(&program);
  for (uint64_t round = 2; round <= ROUNDS; round++) {
    if (round % 4 == 2) usleep(100000);
    exchange(round);
  }
  give_lock(program);
  exchange(ROUNDS + 1);
  end();
}

/* What NCCL has made for its device code of a context: of what lies there the carrier knows where its signals are. */
static void *proxy_context(void) {
  uint64_t *at = device_memory(4096, 0);
  at[0] = (uint64_t)numRanks | (uint64_t)QUEUE << 32;
  for (int i = 1; i < 5; i++) at[i] = (uint64_t)(uintptr_t)(at + 64);
  at[5] = (uint64_t)(uintptr_t)comm.signals[0];
  return at;
}

static void announced(void) {
  pthread_t program;
  struct dyn_carrier_expected here, other;
  start();
  void *carrier = dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_NOLOAD), *stranger = device_memory(4096, 0);
  dyn_carrier_expected_of *expected_of = (dyn_carrier_expected_of *)dlsym(carrier, DYN_CARRIER_EXPECTED);
  CHECK(expected_of != NULL && expected_of(proxy_context(), &here) && !expected_of(stranger, &other));
  exchange(1);
  usleep(SILENCE_US);
  for (uint64_t began = ms_now(); __atomic_load_n(here.lapsed, __ATOMIC_SEQ_CST) == 0; usleep(1000)) CHECK(ms_now() - began < 10000, "cards stay though nobody puts");
  __atomic_fetch_add(here.asked, 1, __ATOMIC_SEQ_CST);
  for (uint64_t began = ms_now(); __atomic_load_n(here.lapsed, __ATOMIC_SEQ_CST) != 0; usleep(20)) CHECK(ms_now() - began < 10000, "no card comes");
  CHECK(cudaHold(stream, &released) == 0);
  __atomic_fetch_add(here.launched, 1, __ATOMIC_SEQ_CST);
  take_lock(&program);
  for (uint64_t round = 2; round <= 4; round++) usleep(SILENCE_US), exchange(round);
  __atomic_fetch_add(here.ended, 1, __ATOMIC_SEQ_CST);
  give_lock(program);
  end();
}

/* Out of host memory, of which a request takes little; behind them all a signal. */
static void full(void) {
  enum { PUTS = 64 };
  void *requests[PUTS];
  int done = 0;
  start();
  struct window host = {.at = malloc(BYTES), .bytes = BYTES};
  for (size_t i = 0; i < BYTES; i++) host.at[i] = (unsigned char)random_of(i + (size_t)rank * BYTES);
  register_window(&host, NCCL_PTR_HOST, 0);
  for (size_t i = 0; i < PUTS; i++) {
    const size_t at = i * (BYTES / PUTS);
    CHECK(post_signal(0, at, host.regions[0], BYTES / PUTS, at, to.regions[0], 1 - rank, 8 * (uint64_t)rank, comm.signalRegions[0], 1, NCCL_NET_SIGNAL_OP_INC, &requests[i]) == 0);
  }
  await_signal(0, PUTS);
  for (size_t i = 0; i < BYTES; i++) CHECK(to.at[i] == (unsigned char)random_of(i + (size_t)(1 - rank) * BYTES), "byte %zu", i);
  for (size_t i = 0; i < PUTS; i++, done = 0)
    while (!done) CHECK(poll_request(0, requests[i], &done) == 0 && progress(0) == 0);
  CHECK(post_put(0, 0, host.regions[0], BYTES, 0, to.regions[0], 1 - rank, &requests[0]) == ncclInvalidArgument && strstr(lastWarning, "more host memory at once") != NULL, "%s", lastWarning);
  meet();
  deregister_window(&host);
  end();
}

/* When nobody has put for long, so that no kernel is there, and the thread that launches has nothing to ask of CUDA. */
static void reset(void) {
  int (*cudaReset)(int device);
  void *request;
  start();
  exchange(1);
  usleep(2 * SILENCE_US);
  meet();
  *(void **)&cudaReset = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuDevicePrimaryCtxReset_v2");
  CHECK(cudaReset != NULL && cudaReset(rank) == 0);
  CHECK(post_put(0, 0, from.regions[0], 8, 0, to.regions[0], 1 - rank, &request) == ncclUnhandledCudaError);
  progress(0);
  const uint64_t began = ms_now();
  end();
  CHECK(ms_now() - began < 4900, "%ld ms", (long)(ms_now() - began)); /* copies are waited for for 5 s */
}

static void play_it(const char *name, void (*story)(void)) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  setenv("DYNAMICCL_CARRIER_TYPE", "proxy", 1);
  play(name, 2, -1, story);
}

void play_behind(void) { play_it("behind", behind); }
void play_announced(void) { play_it("announced", announced); }
void play_full(void) { play_it("full", full); }
void play_reset(void) { play_it("reset", reset); }

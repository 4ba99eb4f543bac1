/* SPDX-License-Identifier: Apache-2.0 */
#include "card_locked.h"

#include <dlfcn.h>

#include "../../expected.h"
#include "card_rig.h"

enum { ROUNDS = 20 };

static struct memory from, to;
static int (*cudaStream)(void **stream, unsigned flags), (*cudaHold)(void *stream, const uint32_t *word);
static int (*cudaContext)(void **context), (*cudaSetContext)(void *context);
static void *stream, *context, *spare;
static uint32_t released; /* what the program's kernel waits for */
static atomic_bool freed;

static void start(void) {
  alarm(180); /* what is looked for here are hangs */
  initialise();
  cards_connect();
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&cudaStream = dlsym(driver, "cuStreamCreate");
  *(void **)&cudaHold = dlsym(driver, "fakegpu_hold");
  *(void **)&cudaContext = dlsym(driver, "cuCtxGetCurrent");
  *(void **)&cudaSetContext = dlsym(driver, "cuCtxSetCurrent");
  CHECK(cudaHold != NULL && cudaContext(&context) == 0 && cudaStream(&stream, 0) == 0);
  cards_start();
  from = (struct memory){.at = device_memory(BYTES, 2), .bytes = BYTES};
  to = (struct memory){.at = device_memory(BYTES, 1), .bytes = BYTES};
  spare = device_memory(BYTES, 2);
  memory_register(&from);
  memory_register(&to);
  meet();
}

static void end(void) {
  meet();
  cards_stop();
  cards_end();
}

/* There on all contexts, whose cards are there each for itself. */
static void exchange(uint64_t round) {
  memset(from.at, (int)round, BYTES);
  for (int c = 0; c < CONTEXTS; c++) {
    struct posting p = card_put(c, 1 - rank, &from, 0, &to, (size_t)c * 100000, 70000);
    card_signal(&p, c, 1 - rank, 0, 1);
    card_count(&p, c, 0);
    post(&p);
  }
  for (int c = 0; c < CONTEXTS; c++) await_signal(c, 0, round), await_counter(c, 0, round);
  for (int c = 0; c < CONTEXTS; c++) CHECK(to.at[c * 100000] == (unsigned char)round && to.at[c * 100000 + 69999] == (unsigned char)round);
  meet();
}

static void *free_spare(void *unused) {
  CHECK(cudaSetContext(context) == 0 && cudaFree((uint64_t)(uintptr_t)spare) == 0);
  atomic_store(&freed, true);
  return unused;
}

/* A thread of the program frees memory while a kernel of its waits for other ranks: it keeps CUDA's lock, and waits for that kernel.
 * Whatever ranks put meanwhile arrives, also when they put nothing for a while; and with version 14 no thread of NCCL's waits for the lock. */
static void exchange_behind(void *(*frees)(void *)) {
  pthread_t program;
  exchange(1);
  CHECK(cudaHold(stream, &released) == 0 && pthread_create(&program, NULL, frees, NULL) == 0);
  for (uint64_t round = 2; round <= ROUNDS; round++) {
    usleep(round % 4 == 2 ? 100000 : 3000); /* the card's kernel would have ended by then */
    exchange(round);
    for (int c = 0; c < CONTEXTS && gdaki != NULL; c++) CHECK(gdaki->ginProgress(cards[c].ginContext) == 0); /* NCCL's thread has type Proxy to move */
  }
  CHECK(!atomic_load(&freed), "nobody had the lock");
  __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
  CHECK(pthread_join(program, NULL) == 0);
}

static uint32_t *asks; /* what the next question of NCCL's thread is to find asked for in its midst; NULL: nothing */
static const uint32_t *lapses;
static uint32_t lapsedThen;
static atomic_int asksIn; /* 2: to ask; 1: to look what came of it; 0: looked */

/* NCCL's thread asks for the environment in each turn of a card's, when it has looked whether a kernel was asked for. */
__attribute__((visibility("default"))) char *getenv(const char *name) {
  if (atomic_load(&asksIn) > 0 && strcmp(name, "DYNAMICCL_CARRIER_IDLE_US") == 0) {
    if (atomic_load(&asksIn) == 2) __atomic_fetch_add(asks, 1, __ATOMIC_SEQ_CST);
    else lapsedThen = __atomic_load_n(lapses, __ATOMIC_SEQ_CST);
    atomic_fetch_sub(&asksIn, 1);
  }
  for (char **at = environ; *at != NULL; at++)
    if (strncmp(*at, name, strlen(name)) == 0 && (*at)[strlen(name)] == '=') return *at + strlen(name) + 1;
  return NULL;
}

/* One that is asked for when NCCL's thread has just looked finds no card said to be there before it is. */
static void asked_within_a_turn(const struct dyn_carrier_expected *here) {
  asks = here->asked, lapses = here->lapsed;
  const uint32_t before = __atomic_load_n(lapses, __ATOMIC_SEQ_CST);
  atomic_store(&asksIn, 2);
  for (uint64_t from = ms_now(); atomic_load(&asksIn) != 0; usleep(20)) CHECK(ms_now() - from < 10000, "no turn of NCCL's thread");
  CHECK(lapsedThen >= before, "%u cards of %u are said to be there that are not", before - lapsedThen, before);
  while (__atomic_load_n(lapses, __ATOMIC_SEQ_CST) != 0) usleep(20);
}

/* With version 14 there are more of them. A busy machine is late. */
static void await_lapse(const struct dyn_carrier_expected *here) {
  usleep(1300000);
  for (uint64_t from = ms_now(); __atomic_load_n(here->lapsed, __ATOMIC_SEQ_CST) < CONTEXTS; usleep(1000)) CHECK(ms_now() - from < 10000, "cards stay though nobody puts");
}

static struct dyn_carrier_expected announces(void) {
  struct dyn_carrier_expected other;
  CHECK(!cards_find_expected((const uint8_t *)cards[0].device + 1, &other));
  return cards_expected(&cards[0]);
}

/* A kernel of a graph's begins on the GPU, or is over. */
static void count_replay(const struct dyn_carrier_expected *here, enum dyn_expected_word word) { __atomic_fetch_add(&here->replayed[word], 1, __ATOMIC_SEQ_CST); }

/* Graphs were captured, of which nobody announces what they replay: however long nobody puts cards are there, when the lock is taken, too, and for
 * a while behind; and when the graph's kernel has begun by then, as long as it runs. Only this rank's are kept from being launched. */
static void replayed(void) {
  pthread_t program;
  start();
  const struct dyn_carrier_expected here = announces();
  exchange(1);
  __atomic_store_n(here.captured, 1, __ATOMIC_SEQ_CST);
  usleep(1600000);
  CHECK(__atomic_load_n(here.lapsed, __ATOMIC_SEQ_CST) == 0, "no card is there, though graphs are replayed without a word");
  released = 0;
  CHECK(cudaHold(stream, &released) == 0 && pthread_create(&program, NULL, free_spare, NULL) == 0);
  usleep(20000); /* it waits for other work */
  count_replay(&here, DYN_EXPECTED_BEGUN);
  usleep(1300000);
  for (uint64_t round = 2; round <= 4; round++) exchange(round), usleep(1300000);
  count_replay(&here, DYN_EXPECTED_OVER);
  __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
  CHECK(pthread_join(program, NULL) == 0);
  const uint64_t since = ms_now();
  CHECK(cudaFree((uint64_t)(uintptr_t)device_memory(BYTES, 2)) == 0 && ms_now() - since < 10000, "cudaFree took %ld ms", (long)(ms_now() - since));
  CHECK(cudaSynchronize() == 0);
  __atomic_store_n(here.captured, 0, __ATOMIC_SEQ_CST);
  await_lapse(&here);
  end();
}

/* Who frees memory behind a put waits for cards, with the lock, and where kernels are announced not for a second. A busy machine may be late in each
 * round but one. */
static void free_soon(uint64_t *put) {
  uint64_t least = UINT64_MAX;
  for (int n = 0; n < 5; n++) {
    exchange(++*put);
    const uint64_t since = ms_now();
    CHECK(cudaFree((uint64_t)(uintptr_t)device_memory(BYTES, 2)) == 0);
    if (ms_now() - since < least) least = ms_now() - since;
  }
  CHECK(least < 900, "cudaFree took %ld ms", (long)least);
}

/* The same where nobody put anything for so long that no card is left, and the lock is taken before anybody puts: a kernel was announced, so
 * cards are there before the lock is taken and stay as long as the kernel runs, which gets to putting later than they stay otherwise, and again,
 * and again. */
static void expected(void) {
  pthread_t program;
  uint64_t put = 1;
  start();
  const struct dyn_carrier_expected here = announces();
  exchange(put);
  for (uint64_t round = 2; round <= 3; round++) {
    await_lapse(&here);
    released = 0;
    __atomic_fetch_add(here.asked, 1, __ATOMIC_SEQ_CST);
    for (uint64_t from = ms_now(); __atomic_load_n(here.lapsed, __ATOMIC_SEQ_CST) != 0; usleep(20)) CHECK(ms_now() - from < 10000, "no card comes");
    CHECK(cudaHold(stream, &released) == 0);
    __atomic_fetch_add(here.launched, 1, __ATOMIC_RELEASE);
    if (round == 2) usleep(1300000); /* launches follow each other meanwhile */
    if (round == 2) CHECK(pthread_create(&program, NULL, free_spare, NULL) == 0);
    for (int times = round == 2 ? 3 : 1; times > 0; times--) {
      if (round == 2) usleep(1300000);
      exchange(++put);
    }
    __atomic_fetch_add(here.ended, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    CHECK(round > 2 || pthread_join(program, NULL) == 0);
    CHECK(cudaSynchronize() == 0);
  }
  /* One that is only coming may be kept from it by who waits for all kernels. */
  usleep(1300000);
  __atomic_fetch_add(here.asked, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(here.lapsed, __ATOMIC_SEQ_CST) != 0) usleep(20);
  const uint64_t since = ms_now();
  CHECK(cudaFree((uint64_t)(uintptr_t)device_memory(BYTES, 2)) == 0 && ms_now() - since < 10000, "cudaFree took %ld ms", (long)(ms_now() - since));
  __atomic_fetch_add(here.launched, 1, __ATOMIC_RELEASE);
  exchange(++put);
  __atomic_fetch_add(here.ended, 1, __ATOMIC_SEQ_CST);
  free_soon(&put);
  await_lapse(&here);
  asked_within_a_turn(&here);
  exchange(++put);
  end();
}

static void locked(void) {
  start();
  exchange_behind(free_spare);
  exchange(ROUNDS + 1);
  end();
}

static void *gone; /* contexts of a device communicator */

static void *leave(void *unused) {
  CHECK(cudaSetContext(context) == 0);
  CHECK(gdaki->destroyContext(gone) == 0);
  atomic_store(&freed, true);
  return unused;
}

/* With version 14: what frees is a device communicator that goes, whose contexts were used until then. */
static void leaves(void) {
  ncclNetDeviceHandle_v11_t *device;
  ncclGinConfig_v14_t config = {8, 8, 2, 0, -1, GDAKI_BACKEND, 2};
  start();
  CHECK(gdaki->createContext(cards[0].coll, &config, &gone, &device) == 0, "%s", lastWarning);
  cards_turn();
  meet();
  exchange_behind(leave);
  exchange(ROUNDS + 1);
  end();
}

/* A program waits for all of its GPU's kernels while cards come and go: not for those that come later, nor for one to find out that none
 * stands behind it (a second). A busy machine may be late in each round but one. And memory is freed when nothing was put for a second. */
static void waits(void) {
  uint64_t least = UINT64_MAX;
  start();
  for (uint64_t round = 1; round <= ROUNDS; round++) {
    exchange(round);
    const uint64_t since = ms_now();
    CHECK(cudaSynchronize() == 0);
    const uint64_t took = ms_now() - since;
    if (took < least) least = took;
  }
  CHECK(least < 900, "cudaDeviceSynchronize took %ld ms", (long)least);
  const uint64_t since = ms_now();
  CHECK(cudaFree((uint64_t)(uintptr_t)spare) == 0 && ms_now() - since < 10000, "cudaFree took %ld ms", (long)(ms_now() - since));
  exchange(ROUNDS + 1);
  usleep(1200000);
  exchange(ROUNDS + 2); /* behind a time without cards */
  end();
}

void play_locked(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("locked", 2, -1, locked);
}

void play_expected(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("expected", 2, -1, expected);
}

void play_replayed(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("replayed", 2, -1, replayed);
}

void play_waits(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("waits", 2, -1, waits);
}

void play_leaves(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("leaves", 2, -1, leaves);
}

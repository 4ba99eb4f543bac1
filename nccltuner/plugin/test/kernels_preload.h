/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_kernels.c: what stands for the preload library, by which ranks have kernels or have none.
 */
#ifndef DYN_TEST_KERNELS_PRELOAD_H
#define DYN_TEST_KERNELS_PRELOAD_H

static __thread struct dyn_preload_call call;
static struct dyn_timed timed;
static enum how how;
static int rank;
static uint32_t (*choose)(void *, int, uint64_t, uint32_t);
static void *chooser;
static struct dyn_lsa { int opened; } lsa;

static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}
static bool can_time(void) { return true; }

static struct dyn_lsa *offer(uint64_t id, uint32_t nRanks, uint32_t ownRank, struct dyn_offer *own) {
  CHECK(id == COMM_ID && nRanks == RANKS && ownRank == (uint32_t)rank);
  if (how == ONE_REFUSES && rank == 1) return NULL;
  usleep(1000 * (unsigned)rank); /* one after the other */
  *own = (struct dyn_offer){.pid = (uint32_t)getpid(), .startTime = 7, .at = 100 + ownRank, .bytes = 64, .contexts = 1 + ownRank};
  memset(own->handle, 'a' + rank, sizeof own->handle);
  return &lsa;
}

/* By the program's config 24 on rank 1; the rest by NCCL's variables (play). */
static uint32_t allowed_on(int r) { return r == 1 ? (how == BOUNDED ? 5 : 24) : r == 2 ? (how == BOUNDED ? 1 : 7) : 0; }

static bool open_all(struct dyn_lsa *it, const struct dyn_offer *offers) {
  for (int r = 0; r < RANKS; r++)
    CHECK(offers[r].at == 100u + (unsigned)r && offers[r].bytes == 64 && offers[r].handle[63] == 'a' + r && offers[r].gpu[15] == 0x60 + r && offers[r].multiprocessors == 132 && offers[r].mostCtas == allowed_on(r) && offers[r].contexts == 1u + (unsigned)r && offers[r].pid != 0);
  __atomic_fetch_add(&shared->open, 1, __ATOMIC_SEQ_CST);
  it->opened = 1;
  return !(how == ONE_CANNOT_OPEN && rank == 2);
}

/* Up to 128 KiB in one shot, bulk for all. */
static uint32_t room(const struct dyn_lsa *it, int collective, uint64_t bytes) {
  CHECK(it->opened);
  return collective != ALLREDUCE && collective != ALLTOALL ? 0 : bytes < 2 * BYTES ? ONE_SHOT | BULK : BULK;
}

static bool bind(struct dyn_lsa *it, void *ofComm, uint32_t (*function)(void *, int, uint64_t, uint32_t)) {
  CHECK(it == &lsa && call.depth == 1);
  chooser = ofComm;
  choose = function;
  return true;
}

static void close_it(struct dyn_lsa *it) {
  CHECK(it == &lsa);
  __atomic_fetch_add(&shared->closed, 1, __ATOMIC_SEQ_CST);
}

static void (*now)(void *);
static bool expect(struct dyn_lsa *it, void *ofComm, uint32_t (*function)(void *, int, uint64_t, uint32_t), void (*whenMade)(void *)) {
  CHECK(it == &lsa);
  if (how == ALL_BIND_LATE || (how == ONE_BINDS_LATE && rank == 1)) return false;
  chooser = ofComm;
  choose = function;
  now = whenMade;
  return true;
}

static bool names(void) { return !(how == ONE_HAS_NO_NAMES && rank == 2); }
static bool windows(const struct dyn_lsa *it) {
  CHECK(it == &lsa);
  return !(how == ONE_MISSES_WINDOWS && rank == 1);
}

static void gpu(uint8_t id[16], uint32_t *multiprocessors) {
  memset(id, 0x60 + rank, 16);
  *multiprocessors = 132;
}
static uint32_t ctas(uint32_t nRanks, uint32_t ofRank) { /* rank 2 has a variable, too */
  return (nRanks == RANKS && ofRank >= 1 ? 24 : 0) | ((how == NO_CTAS && ofRank == 0) || (how == BOUNDED && ofRank == 1) ? DYN_NO_CTAS : 0);
}

static const struct dyn_device_calls device = {offer, open_all, room, bind, expect, close_it, NULL, NULL, names, windows, gpu, NULL, ctas};
extern struct dyn_preload dynamiccl_preload;
__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {
    .version = DYN_PRELOAD_VERSION, .call = this_call, .about = about, .can_time = can_time, .device = &device, .roundLock = PTHREAD_MUTEX_INITIALIZER};

#endif

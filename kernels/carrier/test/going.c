/* SPDX-License-Identifier: Apache-2.0 */
#include "going.h"

#include "rig.h"

enum { MANY = 16, EACH = 2 << 20, BYTES = MANY * EACH, SIGNALS_BEHIND = 100 };

static struct window from, to;

static void give_up(struct window *window) {
  for (int c = 0; c < (rma != NULL ? 1 : CONTEXTS); c++) CHECK(TABLE(deregMrSym)(comm.colls[c], window->regions[c]) == 0);
}

static int post_to_peer(size_t at, size_t bytes, uint64_t signal, void **request) {
  if (signal == 0) return post_put(0, at, from.regions[0], bytes, at, to.regions[0], 1 - rank, request);
  return post_signal(0, at, from.regions[0], bytes, at, to.regions[0], 1 - rank, 8 * (uint64_t)rank, comm.signalRegions[0], signal, NCCL_NET_SIGNAL_OP_ADD, request);
}

/* What became of it, when it is done. */
static int await(void *request) {
  int done = 0, result = 0;
  for (int looks = 0; !done; looks++) {
    CHECK(looks < 50000, "a put is not done");
    CHECK(progress(0) == 0);
    result = poll_request(0, request, &done);
    usleep(100);
  }
  return result;
}

static uint64_t signal_of_peer(void) {
  CHECK(progress(0) == 0);
  return __atomic_load_n(&comm.signals[0][1 - rank], __ATOMIC_ACQUIRE);
}

static void await_signal(uint64_t value) {
  for (int looks = 0; signal_of_peer() != value; looks++) {
    CHECK(looks < 50000, "signal %lu", (long)signal_of_peer());
    usleep(100);
  }
}

/* Nothing else is in so many bytes of it. By words: under the thread sanitizer each look costs. */
static bool has_alone(int byte, size_t bytes) {
  const uint64_t *words = (const uint64_t *)(const void *)to.at;
  for (size_t i = 0; i < bytes / sizeof *words; i++)
    if (words[i] != (uint64_t)byte * 0x0101010101010101u) return false;
  return true;
}

/* Copies that have begun end before the memory goes, and arrive whole, with their signals. */
static void begun(void) {
  void *requests[MANY];
  memset(from.at, 0x5a + rank, BYTES);
  for (int i = 0; i < MANY; i++) CHECK(post_to_peer((size_t)i * EACH, EACH, 1, &requests[i]) == 0);
  give_up(&to);
  for (int i = 0; i < MANY; i++) CHECK(await(requests[i]) == 0);
  await_signal(MANY);
  CHECK(has_alone(0x5a + 1 - rank, BYTES));
  meet();
}

/* One that has not begun, here for a rank that plays dead, fails where the memory has gone; and so does one that comes later, with a handle
 * that is no more. Neither brings a byte, or a signal. */
static void waiting(bool source) {
  void *request, *late;
  register_window(&to, NCCL_PTR_CUDA, 0);
  memset(to.at, 0, EACH);
  write_faults("dead_rank 1\n");
  for (int looks = 0; looks < 1000; looks++) { /* until it is heard of */
    CHECK(progress(0) == 0);
    usleep(100);
  }
  CHECK(post_to_peer(0, EACH, 1, &request) == 0);
  meet();
  give_up(source ? &from : &to);
  write_faults(NULL);
  CHECK(await(request) == ncclInvalidUsage);
  CHECK(post_to_peer(0, EACH, 1, &late) == ncclInvalidArgument && strstr(lastWarning, "not registered any more") != NULL, "%s", lastWarning);
  meet();
  for (int looks = 0; looks < 100; looks++) CHECK(signal_of_peer() == MANY);
  CHECK(has_alone(0, EACH));
  meet();
  give_up(source ? &to : &from);
  register_window(&from, NCCL_PTR_CUDA, 0);
}

/* ---- signals ---- */

static atomic_bool stops;
static struct window counts;

static void *receive(void *result) {
  while (!atomic_load(&stops)) *(int *)result = progress(0);
  return NULL;
}

/* Signals that come while their memory goes, to NCCL's thread: each is added while that is there, or an error of the connection. */
static void added(void) {
  pthread_t thread;
  int result = 0;
  counts = (struct window){.at = device_memory(EACH, 1), .bytes = EACH};
  register_window(&counts, NCCL_PTR_CUDA, 0);
  meet();
  if (rank == 0) {
    CHECK(pthread_create(&thread, NULL, receive, &result) == 0);
    while (__atomic_load_n((uint64_t *)(void *)counts.at, __ATOMIC_ACQUIRE) < 10) usleep(10);
    give_up(&counts);
    atomic_store(&shared->ended, 1);
    const uint64_t sum = __atomic_load_n((uint64_t *)(void *)counts.at, __ATOMIC_ACQUIRE);
    meet();
    usleep(20000);
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    CHECK(sum == __atomic_load_n((uint64_t *)(void *)counts.at, __ATOMIC_ACQUIRE), "it was added to when it had gone");
    CHECK(result == ncclInternalError && strstr(lastWarning, "a signal for memory that is not registered (any more)") != NULL, "%d: %s", result, lastWarning);
  } else {
    for (int behind = 0; behind < SIGNALS_BEHIND; behind += atomic_load(&shared->ended)) {
      void *request;
      CHECK(post_signal(0, 0, NULL, 0, 0, NULL, 0, 0, counts.regions[0], 1, NCCL_NET_SIGNAL_OP_INC, &request) == 0 && await(request) == 0);
    }
    meet();
    give_up(&counts);
  }
}

static void going(void) {
  quiet = 1;
  initialise();
  connect_all();
  from = (struct window){.at = device_memory(BYTES, 2), .bytes = BYTES};
  to = (struct window){.at = device_memory(BYTES, 1), .bytes = BYTES};
  register_window(&from, NCCL_PTR_CUDA, 0);
  register_window(&to, NCCL_PTR_CUDA, 0);
  meet();
  begun();
  waiting(false);
  waiting(true);
  added();
  meet();
  finish();
}

void play_going(void) { play("going", 2, -1, going); }

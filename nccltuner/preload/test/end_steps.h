/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator that ends well: when NCCL says that all is over, so are calls that our kernels run, however late a peer comes, for the
 * program may free its buffers then. Included by test_lsa.c.
 */
#ifndef DYN_END_STEPS_H
#define DYN_END_STEPS_H

enum { BLOCKS, IN_A_GROUP, BLOCKS_NOT, NUM_ENDS };

static int in_progress(void) { return 7; }
static int finalize(void) { return find("ncclCommFinalize")(COMM, 0, 0, 0, 0, 0, 0, 0, 0); }

static void *finalize_in_thread(void *nothing) {
  last_call()->inside = succeed;
  CHECK(finalize() == 0);
  return nothing;
}

static void finalize_as(int way) {
  if (way == IN_A_GROUP) group_start();
  fake->inside = way == BLOCKS_NOT ? in_progress : succeed;
  CHECK(finalize() == (way == BLOCKS_NOT ? 7 : 0));
  fake->inside = succeed;
  if (way == IN_A_GROUP) group_end();
  if (way != BLOCKS_NOT) return;
  CHECK(rank > 0 || async_error() == 7);
  if (rank == 0) meet();
  while (async_error() == 7) usleep(1000);
  CHECK(async_error() == 0);
}

/* Of calls in flight for which rank 0 waits. */
static void finalized(void) {
  for (int way = 0; way < NUM_ENDS; way++) {
    if (way == 0) prepare();
    else make();
    asked = 0;
    bind_lsa();
    struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1), .seed = (uint64_t)way};
    fill(&s, 0);
    meet();
    if (rank > 0 && way == BLOCKS_NOT) meet();
    else if (rank > 0) usleep(500000);
    make_call(&s, 0, 0);
    finalize_as(way);
    compare(&s, 0, true);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    preload->device->close(lsa);
    meet();
  }
}

/* Nobody comes, and another thread ends the wait as a watchdog does. */
static void finalized_in_vain(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
  pthread_t waiter;
  if (rank == 0) {
    make_call(&s, 0, 0);
    CHECK(pthread_create(&waiter, NULL, finalize_in_thread, NULL) == 0);
    usleep(200000);
    CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    preload->device->close(lsa);
    CHECK(pthread_join(waiter, NULL) == 0);
  }
  meet();
}

static int destroy(void) { return find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0); }

/* The same, of a thread that destroys: what the other one has ended it leaves alone. */
static void destroyed_in_vain(void) {
  for (int round = 0; round < 10; round++) {
    if (round == 0) prepare();
    else make();
    asked = 0;
    bind_lsa();
    struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
    pthread_t waiter;
    if (rank == 0) {
      make_call(&s, 0, 0);
      CHECK(pthread_create(&waiter, NULL, (void *(*)(void *))(void *)destroy, NULL) == 0);
      usleep(100000);
      CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
      preload->device->close(lsa);
      CHECK(pthread_join(waiter, NULL) == 0);
    } else {
      CHECK(destroy() == 0);
      preload->device->close(lsa);
    }
    meet();
  }
}

static pthread_t asker;
static atomic_bool lets;
/* Whoever else asks whether an event is over. */
static void keep(double nowNs) {
  (void)nowNs;
  while (!pthread_equal(pthread_self(), asker) && !atomic_load(&lets)) usleep(1000);
}

/* The driver keeps who asks it until the kernels are over, as one may while memory is freed: who looks for dead ranks neither asks it before he
 * stops them, nor waits for a thread that does. */
static void kept(void) {
  struct step s = begin_with_call();
  meet();
  if (rank == 1) {
    usleep(500000);
    _exit(0);
  }
  pthread_t waiter;
  asker = pthread_self();
  ((void (*)(void (*)(double)))of_driver("fakegpu_on_query"))(keep);
  alarm(in_vain_s(20));
  make_call(&s, 0, 0);
  CHECK(pthread_create(&waiter, NULL, finalize_in_thread, NULL) == 0);
  wait_for_all();
  atomic_store(&lets, true);
  CHECK(pthread_join(waiter, NULL) == 0 && async_error() == 6);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

/* However late. */
static void destroyed(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
  fill(&s, 0);
  if (rank > 0) usleep(11000000);
  make_call(&s, 0, 0);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  compare(&s, 0, true);
  preload->device->close(lsa);
  meet();
}

#endif

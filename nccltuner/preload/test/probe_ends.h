/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that fork, and that end, while calls are in flight. Included by test_probe.c.
 */
#ifndef DYN_TEST_PROBE_ENDS_H
#define DYN_TEST_PROBE_ENDS_H

static int forked_inside(void) {
  pid_t child = fork();
  if (child == 0) {
    plan.asks = 0;
    return inside(); /* the call goes on in the child, too */
  }
  CHECK(status_of(child) == 0);
  return inside();
}

/* The child of a fork starts with nothing, and times calls of its own. */
static void forked(void) {
  atomic_store(&gpu->now, 0);
  pid_t self = getpid();
  for (uint64_t i = 0; i < 20; i++) call(i, 0, 10, 10);
  pid_t child = fork();
  if (child == 0) {
    open_ring();
    everything_is_over();
    meet(1);
    call(100, 1, 10, 30);
    struct dyn_sample s = await();
    CHECK(s.seq == 100 && s.signalNs == 30);
    none();
    exit(0);
  }
  CHECK(status_of(child) == 0);
  plan = (struct plan){.asks = 1, .takes = 10, .seq = 20};
  CHECK(all_reduce_as(FAKE_STREAM(0), forked_inside) == SUCCESS);
  if (getpid() != self) {
    open_ring();
    everything_is_over();
    meet(0);
    call(200, 0, 10, 40);
    CHECK(await().seq == 200);
    exit(0);
  }
  everything_is_over();
  for (uint64_t i = 0; i < 21; i++) CHECK(await().seq == i);
}

static void driver_goes(void) { atomic_store(&gpu->gone, true); }

/* The driver takes itself down at exit: not a call of it after that, although calls are in flight. */
static void exits(void) {
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      atexit(driver_goes); /* as it does when it starts, before any call is timed */
      atomic_store(&gpu->now, 0);
      for (uint64_t n = 0; n < 100; n++) call(n, (int)n % 4, 10, 10);
      if (i % 2) sleep_us(100 * i);
      exit(0);
    }
    uint64_t began = now_ns();
    int status = status_of(child);
    CHECK(status == 0, "status %x", status);
    CHECK(now_ns() - began < 3000000000u, "%lu ms", (unsigned long)(now_ns() - began) / 1000000);
  }
}

/* A thread that holds the round for ever, as a driver that hangs would, keeps nobody from ending, also where the host's clock is set
 * back by an hour behind the first look at it. */
static void exits_from_a_hang(void) {
  pid_t child = fork();
  if (child == 0) {
    setBackS = 3600;
    alarm(10);
    call(1, 0, 10, 10);
    pthread_mutex_lock(&preload->roundLock);
    pid_t other = fork(); /* not even there */
    if (other == 0) exit(0);
    CHECK(status_of(other) == 0);
    exit(0);
  }
  CHECK(status_of(child) == 0);
}

#endif

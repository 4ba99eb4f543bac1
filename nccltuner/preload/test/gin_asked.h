/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: whether calls are over is asked of CUDA, and who asks may be kept by its driver.
 */
#ifndef DYN_TEST_GIN_ASKED_H
#define DYN_TEST_GIN_ASKED_H

static pthread_t asker;
static atomic_bool lets;
/* Whoever else asks whether an event is over. */
static void keep(double nowNs) {
  (void)nowNs;
  while (!pthread_equal(pthread_self(), asker) && !atomic_load(&lets)) usleep(1000);
}

/* As death, where the driver keeps who asks it until the kernels are over. */
static void death_while_kept(void) {
  begin();
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  if (rank == numRanks - 1) {
    usleep(1500000); /* until the others have been asking */
    _exit(0);
  }
  asker = pthread_self();
  ((void (*)(void (*)(double)))dlsym(RTLD_DEFAULT, "fakegpu_on_query"))(keep);
  CHECK(issue(&s, 0) == 0);
  uint64_t began = now_ms();
  alarm(20);
  wait_for_all();
  CHECK(now_ms() - began < 6500 && dyn_lsa_stopped(lsa) && dyn_gin_now(lsa) == DYN_GIN_FAILED, "after %d ms", (int)(now_ms() - began));
  atomic_store(&lets, true);
  dyn_lsa_close(lsa);
}

/* A call is known to be over without anybody who asks for it. */
static void completes(void) {
  begin();
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  for (int round = 0; round < 2; round++) {
    CHECK(issue(&s, 0) == 0);
    wait_for_all();
    uint64_t began = now_ms();
    while ((told() & 255) != DYN_GIN_COMPLETE && now_ms() - began < 10000) usleep(1000);
    CHECK((told() & 255) == DYN_GIN_COMPLETE, "%s", dyn_gin_state_name(told() & 255));
  }
  meet();
  end(DYN_GIN_DESTROYED);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What people read of a rank that is late. Included by test_lsa.c, behind what begins a communicator.
 */
#ifndef DYN_LATE_STEPS_H
#define DYN_LATE_STEPS_H

/* A rank that lives and does not come is waited for, and that is said: the call, the rank, how long; not in each round, and no more when
 * it has come. */
static void late(void) {
  enum { SLEEP_MS = 5500 };
  char said[4096] = "";
  setenv("DYNAMICCL_LATE_S", "1", 1);
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  meet();
  int was = dup(STDERR_FILENO), ends[2];
  CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
  if (rank == 0) usleep(SLEEP_MS * 1000);
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  usleep(1200000);
  ssize_t n = read(ends[0], said, sizeof said - 1);
  CHECK(dup2(was, STDERR_FILENO) >= 0);
  compare(&s, 0, true);
  int lines = 0;
  for (const char *at = said; (at = strchr(at, '\n')) != NULL; at++) lines++;
  char want[128];
  snprintf(want, sizeof want, "rank %d waits for rank 0, process %u, since 1 s: AllReduce of 400 bytes, call 2 of our kernels; it goes on waiting\n", rank, shared->offers[0].pid);
  if (rank == 0) CHECK(n <= 0, "%s", said);
  else CHECK(strstr(said, want) != NULL && lines >= 2 && lines <= 3, "want \"%s\" among 2 or 3 lines: %s", want, said);
  meet();
}

#endif

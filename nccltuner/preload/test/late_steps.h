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

/* Reads on until the text is there, for so long as it may take. */
static bool reads(int from, char *said, size_t size, const char *text) {
  size_t has = strlen(said);
  for (int naps = 0; naps < (int)in_vain_s(2) * 1000 && strstr(said, text) == NULL; naps++) {
    ssize_t n = read(from, said + has, size - 1 - has);
    has += n > 0 ? (size_t)n : 0;
    said[has] = '\0';
    usleep(1000);
  }
  return strstr(said, text) != NULL;
}

/* Standard error is a pipe that is full, and nobody reads it: a rank that is late and then dies is found all the same, and the program can
 * abort. What was to be said is said to who reads on. */
static void unread(void) {
  setenv("DYNAMICCL_LATE_S", "1", 1);
  struct step s = begin_with_call();
  char page[4096], said[8192] = "";
  int was = dup(STDERR_FILENO), ends[2];
  CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, (int)sizeof page) == sizeof page);
  memset(page, '.', sizeof page);
  meet();
  if (rank == 1) {
    usleep(2500000);
    _exit(0);
  }
  alarm(in_vain_s(20));
  CHECK(write(ends[1], page, sizeof page) == sizeof page && dup2(ends[1], STDERR_FILENO) >= 0);
  uint64_t began = now_ms();
  make_call(&s, 0, 0);
  wait_for_all();
  int error = async_error(), again = issue(&s, 0, COMM), aborts = find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0);
  preload->device->close(lsa);
  uint64_t tookMs = now_ms() - began;
  bool read = fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && reads(ends[0], said, sizeof said, "rank 0 waits for rank 1") && reads(ends[0], said, sizeof said, "is dead: kernels");
  CHECK(dup2(was, STDERR_FILENO) >= 0);
  CHECK(tookMs < in_vain_s(7) * 1000 + 500, "it took %d ms", (int)tookMs);
  CHECK(error == 6 && again == 6 && aborts == 0, "%d, %d, %d", error, again, aborts);
  CHECK(read, "%s", said);
}

#endif

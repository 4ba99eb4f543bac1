/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_movers.c: how many threads there are, by what they wait for, what the user says and the ranks of the host.
 */
#define LOOK_MS 30
static const uint64_t countBegan = UINT64_C(1000000000000);

/* The clock of a thread at its so-many-th look: it runs for 1 ms between two. */
static void tell_clock(int file, uint64_t look, uint64_t waitedNs) {
  char text[80];
  int n = snprintf(text, sizeof text, "%llu %llu %llu\n", (unsigned long long)look * 1000000, (unsigned long long)waitedNs, (unsigned long long)look);
  CHECK(pwrite(file, text, (size_t)n, 0) == n);
}
static uint64_t at_look(uint64_t look) { return countBegan + look * LOOK_MS * 1000000; }

/* What two threads had to wait for at one time is one thread too many, whoever has read its clock first. */
static void crowded_at_once(void) {
  struct dyn_mover_wait first = {.file = fileno(tmpfile())}, second = first;
  uint64_t look = 1, waitedNs = 0;
  dyn_movers_are(2);
  for (; dyn_movers_now(at_look(look)) == 2; look++, waitedNs += 9000000) {
    CHECK(look < 5);
    tell_clock(first.file, look, waitedNs);
    dyn_mover_worked(&first, at_look(look) + 5000);
    if (dyn_movers_now(at_look(look)) == 2) dyn_mover_worked(&second, at_look(look));
  }
  dyn_mover_worked(&second, at_look(look - 1));
  CHECK(dyn_movers_now(at_look(look)) == 1);
  for (; dyn_movers_now(at_look(look)) == 1; look++, waitedNs += 9000000) {
    CHECK(look < 12);
    tell_clock(first.file, look, waitedNs);
    dyn_mover_worked(&second, at_look(look));
  }
  CHECK(dyn_movers_now(at_look(look)) == 0);
  CHECK(dyn_movers_now(at_look(look) + UINT64_C(20000000000)) == 1);
}

/* How many threads are left of two when of each `of` looks the last so many have waited. */
static int left_of_two(uint64_t crowded, uint64_t of, uint64_t woken) {
  struct dyn_mover_wait wait = {.file = fileno(tmpfile())};
  uint64_t waitedNs = 0;
  int least = 2;
  dyn_movers_are(2);
  for (uint64_t look = 1; look < 400; look++) {
    waitedNs += look % of >= of - crowded ? 9000000 : 0;
    tell_clock(wait.file, look, waitedNs);
    wait.woken = woken;
    dyn_mover_worked(&wait, at_look(look));
    int now = dyn_movers_now(at_look(look));
    least = now < least ? now : least;
  }
  return least;
}

/* One look now and then is somebody else's burst; two of five are a thread too many. */
static void crowded_often(void) {
  CHECK(left_of_two(2, 5, 0) < 2);
  CHECK(left_of_two(1, 10, 0) == 2);
}

/* What a thread waited because an idle CPU had to come back says nothing of others. */
static void woken_often(void) {
  CHECK(left_of_two(1, 1, 90) == 2);
  CHECK(left_of_two(1, 1, 80) < 2);
}

/* The plugin meets ranks that nobody told of: with a hundred thousand of them there is no CPU for a thread, and no try later. */
static void more_ranks(void) {
  const uint64_t now = UINT64_C(1000000000000);
  unsetenv("DYNAMICCL_SOCKET_THREADS");
  dyn_movers_are(2);
  CHECK(dyn_movers_now(now) == 2 || dyn_movers_wanted() < 2);
  atomic_store(&dynamiccl_preload.ranksHere, 100000);
  CHECK(dyn_movers_wanted() == 0);
  CHECK(dyn_movers_now(now) == 0);
  CHECK(dyn_movers_now(now + UINT64_C(100000000000)) == 0);
}

static void ranks_and_a_word(void) { /* what the user says holds whatever the plugin meets */
  setenv("DYNAMICCL_SOCKET_THREADS", "2", 1);
  atomic_store(&dynamiccl_preload.ranksHere, 100000);
  CHECK(dyn_movers_wanted() == 2);
  dyn_movers_are(2);
  CHECK(dyn_movers_now(1) == 2);
}

static void how_many(void) {
  static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"};
  for (int i = 0; i < 4; i++) unsetenv(names[i]);
  setenv("DYNAMICCL_SOCKET_THREADS", "3", 1);
  CHECK(dyn_movers_wanted() == 3);
  setenv("DYNAMICCL_SOCKET_THREADS", "0", 1);
  CHECK(dyn_movers_wanted() == 0);
  setenv("DYNAMICCL_SOCKET_THREADS", "1000000", 1);
  CHECK(dyn_movers_wanted() == DYN_MOVERS);
  setenv("DYNAMICCL_SOCKET_THREADS", "many", 1); /* as without it */
  setenv("LOCAL_WORLD_SIZE", "100000", 1);
  CHECK(dyn_movers_wanted() == 0);
  unsetenv("DYNAMICCL_SOCKET_THREADS");
  CHECK(dyn_movers_wanted() == 0);
}

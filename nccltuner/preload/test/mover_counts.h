/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_movers.c: how many threads there are, by what they wait for, what the user says and the ranks of the host.
 */
/* What two threads had to wait for at one time is one thread too many, whoever has read its clock first. */
static void crowded_at_once(void) {
  const uint64_t began = UINT64_C(1000000000000), later = began + 30000000;
  FILE *says = tmpfile();
  struct dyn_mover_wait first = {.file = fileno(says)}, second = first;
  dyn_movers_are(2);
  CHECK(pwrite(first.file, "1000000 0 1\n", 12, 0) == 12);
  dyn_mover_worked(&first, began);
  dyn_mover_worked(&second, began);
  CHECK(pwrite(first.file, "2000000 9000000 2\n", 18, 0) == 18);
  dyn_mover_worked(&first, later + 5000);
  CHECK(dyn_movers_now(later + 5000) == 1);
  dyn_mover_worked(&second, later);
  CHECK(dyn_movers_now(later + 6000) == 1);
  CHECK(pwrite(first.file, "3000000 19000000 3\n", 19, 0) == 19);
  dyn_mover_worked(&second, later + 50000000);
  CHECK(dyn_movers_now(later + 50000000) == 0);
  CHECK(dyn_movers_now(later + UINT64_C(20000000000)) == 1);
}

/* What a thread waited because an idle CPU had to come back says nothing of others. */
static void woken_often(void) {
  const uint64_t began = UINT64_C(1000000000000), later = began + 30000000;
  FILE *says = tmpfile();
  struct dyn_mover_wait wait = {.file = fileno(says)};
  dyn_movers_are(2);
  CHECK(pwrite(wait.file, "1000000 0 1\n", 12, 0) == 12);
  dyn_mover_worked(&wait, began);
  CHECK(pwrite(wait.file, "2000000 9000000 99\n", 19, 0) == 19);
  wait.woken = 90;
  dyn_mover_worked(&wait, later);
  CHECK(dyn_movers_now(later) == 2 && wait.woken == 0);
  CHECK(pwrite(wait.file, "3000000 18000000 199\n", 21, 0) == 21);
  wait.woken = 80;
  dyn_mover_worked(&wait, later + 30000000);
  CHECK(dyn_movers_now(later + 30000000) == 1);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls on registered memory run. Included by test_kernels.c, behind what it knows of all ranks.
 */
#ifndef DYN_KERNELS_REGISTERED_H
#define DYN_KERNELS_REGISTERED_H

/* Calls on registered memory run their own trials, in their order: what a name of NCCL's can bring about, and our kernels. */
static void check_registered(void) {
  const uint32_t first = 7u << 3 | 7u | 1u << 14 | 1u << 17, symmetric = 1u << 19 | 1u << 20 | 1u << 21 | 1u << 22 | 1u << 23, refused = 1u << 22;
  const uint32_t want[] = {ACTION(1, 2, 0), REFUSED, LSA(0, 8), NCCLS, NCCLS, NCCLS, NCCLS, NCCLS}; /* then the base */
  int i = 1;
  while (i < CALLS && shared->onWindows[0][i] != want[0]) i += 3;
  CHECK(i > 0 && i < CALLS / 2, "before a plan is in force they are NCCL's");
  for (int before = 1; before < i; before += 3) CHECK(shared->onWindows[0][before] == NCCLS);
  for (size_t n = 0; n < 30; n++, i += 3)
    CHECK(shared->onWindows[0][i] == (n < 8 ? want[n] : SYMMETRIC(DYN_SYMMETRIC_AG_LL)), "call %d: %x", (int)n, shared->onWindows[0][i]);
  for (int r = 0; r < RANKS; r++) CHECK(shared->named[r] == (1u << 31 | 5u << 26 | first | (symmetric & ~refused)), "rank %d: marks %x", r, shared->named[r]);
}

/* Where a rank's NCCL takes no names calls there count apart all the same, and are NCCL's default or our kernels. */
static void check_unnamed(void) {
  int ours = 0;
  for (int i = 1; i < CALLS; i += 3) {
    CHECK(shared->onWindows[0][i] == NCCLS || shared->onWindows[0][i] == LSA(0, 8), "call %d: %x", i, shared->onWindows[0][i]);
    ours += shared->onWindows[0][i] == LSA(0, 8);
  }
  CHECK(ours == 1, "the trial of ours, once: %d", ours);
  for (int r = 0; r < RANKS; r++) CHECK(shared->named[r] == (1u << 31 | 5u << 26), "rank %d: marks %x", r, shared->named[r]);
}

/* What AllToAll learns on other memory is nothing to those of a communicator with windows: they have trials of their own. */
static void check_exchanged_there(void) {
  int i = 0;
  while (i < CALLS && shared->exchangedThere[0][i] != LSA(2, 32)) i += 4;
  CHECK(i >= 8 && i < CALLS / 2, "two trials of NCCL's, then the base: %d", i);
  for (int n = 0; n < i; n += 4) CHECK(shared->exchangedThere[0][n] == NCCLS, "call %d: %x", n, shared->exchangedThere[0][n]);
  for (; i < CALLS; i += 4) CHECK(shared->exchangedThere[0][i] == LSA(2, 32), "call %d: %x", i, shared->exchangedThere[0][i]);
}

#endif

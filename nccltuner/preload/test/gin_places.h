/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_gin: ranks share a GPU, so that kernels have fewer CTAs, hierarchical ones too, whatever an action asks for. Included by it.
 */
#ifndef DYN_GIN_PLACES_H
#define DYN_GIN_PLACES_H

static struct dyn_host_driver without; /* the driver's own */
static unsigned blocks;                /* of the newest kernel */
static int count_blocks(const struct dyn_launch *config, void *function, void **arguments, void **extra) {
  blocks = config->gridX;
  return without.cuLaunchKernelEx(config, function, arguments, extra);
}

/* 4 ranks of 2 nodes, on one GPU or of a program that bounds CTAs; most: that each kernel may have then. */
static void places(unsigned most) {
  static const int all[] = {DYN_ALL_TO_ALL, DYN_ALL_GATHER, DYN_REDUCE_SCATTER, DYN_ALL_REDUCE};
  begin();
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  without = *driver;
  driver->cuLaunchKernelEx = count_blocks;
  unsigned onRails = most < DYN_GIN_ROLES ? most : most / DYN_GIN_ROLES * DYN_GIN_ROLES;
  for (int i = 0; i < 4; i++) {
    struct step s = {.collective = all[i], .count = 60000, .ctas = 16, .seed = (uint64_t)i}; /* AllReduce in one piece, for which there is no hierarchical kernel */
    fill(&s, 0);
    CHECK(issue(&s, 0) == 0);
    wait_for_all();
    compare(&s, 0);
    CHECK(blocks == (i == 3 ? most : onRails), "collective %d: %u blocks, %u CTAs are allowed", all[i], blocks, most);
  }
  struct exchange x;
  exchange_make(&x, 7, MOST);
  exchange_fill(&x, in[0], out[0]);
  CHECK(issue_exchange(&x, 0, 0) == 0);
  wait_for_all();
  exchange_compare(&x, out[0]);
  CHECK(blocks == onRails, "AllToAllv: %u blocks, %u CTAs are allowed", blocks, most);
  end(DYN_GIN_DESTROYED);
}
static void places_for_15(void) { places(15); }
static void places_for_5(void) { places(5); }
static void places_for_2(void) { places(2); }
static void places_for_7(void) { places(7); }

/* Two ranks of each host share a GPU, of which the other host's know nothing: where that leaves less than any kernel on GIN has, none is offered. */
static void narrow(bool is) {
  elsewhere = true;
  begin();
  struct dyn_work work = {DYN_ALL_GATHER, in[0], out[0], 100, FLOAT32, SUM, 0, NULL, true, NULL, NULL};
  CHECK((dyn_lsa_able(lsa, &work) == 0) == is && (dyn_lsa_room(lsa, DYN_ALL_GATHER, 400) == 0) == is && dyn_lsa_can_exchange(lsa, DYN_PATH_GIN) == !is);
  end(DYN_GIN_DESTROYED);
}
static void narrow_hosts(void) { narrow(true); }
static void roomy_hosts(void) { narrow(false); }

static void all_places(void) {
  static const struct { int multiprocessors; void (*story)(void); } wants[] = {{132, places_for_15}, {60, places_for_5}, {40, places_for_2}, {90, narrow_hosts}, {132, roomy_hosts}};
  for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
    sharing = wants[i].multiprocessors;
    play_on(2, "places", 4, wants[i].story);
  }
  sharing = 0;
  allowed = 7;
  play_on(2, "allowed", 4, places_for_7);
  allowed = 0;
}

#endif

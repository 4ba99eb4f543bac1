/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_gin: fork(2) in a process with an open communicator that has GIN. Included by it.
 */
#ifndef DYN_GIN_CHILDREN_H
#define DYN_GIN_CHILDREN_H

#include "children.h"

static void within(void) { CHECK(!dyn_lsa_stopped(lsa)); }
static void at_child_exit(void) {}

/* Children end in every way beside calls: their parents' go on, and no rank hears of a death. */
static void children_of_ranks(void) {
  begin();
  uint64_t began = now_ms();
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  for (int way = 0; way < WAYS; way++) {
    s.seed = (uint64_t)way;
    fill(&s, 0);
    meet();
    CHECK(issue(&s, 0) == 0);
    fork_child(way, within, at_child_exit);
    wait_for_all();
    compare(&s, 0);
    play_calls((uint64_t)way * 1000, 3);
  }
  while (!children_ended()) end_children((int)(now_ms() - began)), usleep(1000);
  CHECK(!dyn_lsa_gave_up(lsa));
  play_calls(9000, 3);
  end(DYN_GIN_DESTROYED);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: which moves between the states of GIN there are, and how they are told.
 */
#ifndef DYN_TEST_GIN_STATES_H
#define DYN_TEST_GIN_STATES_H

static void states(void) {
  static const uint32_t allowed[][2] = {
      {DYN_GIN_UNINITIALISED, DYN_GIN_WANTED}, {DYN_GIN_UNINITIALISED, DYN_GIN_REFUSED}, {DYN_GIN_WANTED, DYN_GIN_INITIALISING},
      {DYN_GIN_WANTED, DYN_GIN_REFUSED}, {DYN_GIN_INITIALISING, DYN_GIN_GRANTED}, {DYN_GIN_INITIALISING, DYN_GIN_FAILED},
      {DYN_GIN_GRANTED, DYN_GIN_ACTIVE}, {DYN_GIN_GRANTED, DYN_GIN_FAILED}, {DYN_GIN_ACTIVE, DYN_GIN_IN_FLIGHT},
      {DYN_GIN_ACTIVE, DYN_GIN_DESTROYED}, {DYN_GIN_ACTIVE, DYN_GIN_FAILED}, {DYN_GIN_IN_FLIGHT, DYN_GIN_IN_FLIGHT},
      {DYN_GIN_IN_FLIGHT, DYN_GIN_COMPLETE}, {DYN_GIN_IN_FLIGHT, DYN_GIN_FAILED}, {DYN_GIN_COMPLETE, DYN_GIN_IN_FLIGHT},
      {DYN_GIN_COMPLETE, DYN_GIN_COMPLETE}, {DYN_GIN_COMPLETE, DYN_GIN_DESTROYED}, {DYN_GIN_COMPLETE, DYN_GIN_FAILED}};
  static const uint32_t depths[][2] = {{0, 0}, {1, 1}, {128, 8}, {DYN_GIN_MOST_DEPTH, 31}}; /* and how they are told */
  for (uint32_t from = 0; from < DYN_NUM_GIN_STATES + 2; from++)
    for (uint32_t to = 0; to < DYN_NUM_GIN_STATES + 2; to++) {
      const uint32_t *depth = depths[(from + to) % 4];
      struct dyn_rank told = {.gin = 77};
      struct dyn_gin_state s = {.now = from, .backend = DYN_BACKEND_PROXY, .contexts = 4, .depth = depth[0], .told = &told.gin};
      bool is = false, had = from >= DYN_GIN_GRANTED || to == DYN_GIN_GRANTED;
      for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) is |= allowed[i][0] == from && allowed[i][1] == to;
      CHECK(dyn_gin_move(&s, to) == is && s.now == (is ? to : from), "%u to %u", from, to);
      uint32_t word = !is || from == to ? 77 : had ? to | DYN_BACKEND_PROXY << 8 | 4 << 16 | depth[1] << 24 : to;
      CHECK(told.gin == word, "%u to %u: told %x, want %x", from, to, told.gin, word);
      CHECK(dyn_gin_usable(&s) == (s.now == DYN_GIN_ACTIVE || s.now == DYN_GIN_IN_FLIGHT || s.now == DYN_GIN_COMPLETE));
    }
  for (uint32_t a = 0; a < DYN_NUM_GIN_STATES; a++)
    for (uint32_t b = 0; b < a; b++) CHECK(strcmp(dyn_gin_state_name(a), dyn_gin_state_name(b)) != 0, "two states have one name");
}

#endif

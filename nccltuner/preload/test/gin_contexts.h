/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: how many contexts NCCL 2.32.3 is asked for. Its users say so by NCCL_GIN_NCONTEXTS, and what ranks ask for must be the same.
 */
#ifndef DYN_GIN_CONTEXTS_H
#define DYN_GIN_CONTEXTS_H

static const char *saysContexts[MAX_RANKS]; /* NULL: it says nothing */

static void say_contexts(void) {
  if (saysContexts[rank] != NULL) setenv("NCCL_GIN_NCONTEXTS", saysContexts[rank], 1);
}

static void as_many_contexts(void) {
  say_contexts();
  begin();
  for (int i = 0; i < usable(); i++) CHECK(lsa->gin->each[i].state.contexts == contexts, "%u of %u", lsa->gin->each[i].state.contexts, contexts);
  play_calls(1, 5);
  play_exchanges(2000, 2);
  end(DYN_GIN_DESTROYED);
}

/* What ranks on other hosts say nobody knows, so it is the same whatever they say. */
static void as_many_elsewhere(void) {
  elsewhere = true;
  as_many_contexts();
}

/* 2.28.9 makes as many as each rank's variable says, and ranks would wait for each other in it. */
static void different_contexts(void) {
  say_contexts();
  load();
  CHECK(!make_gin() && dyn_gin_now(lsa) == DYN_GIN_FAILED && lsa->gin->comm == NULL, "NCCL is asked for what it cannot make");
  meet();
  dyn_lsa_close(lsa);
}

static void all_contexts_of_older(void) {
  static const char *const says[][2] = {{"1", "1"}, {NULL, "4"}, {"1", "2"}, {NULL, "1"}};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
    contexts = i == 0 ? 1 : 2;
    memcpy(saysContexts, says[i], sizeof says[i]);
    play("contexts of 2.28.9", 2, i < 2 ? as_many_contexts : different_contexts);
  }
  contexts = 2;
  memset(saysContexts, 0, sizeof saysContexts);
}

static void all_contexts(void) {
  static const struct { unsigned contexts; const char *says[3]; } wants[] = {
      {1, {"1", "1", "1"}}, {1, {"1", "2", NULL}}, {1, {NULL, "4", " 0x1"}}, {2, {"2", "2", "2"}}, {2, {NULL, NULL, NULL}}, {2, {"0", "-1", "5"}}, {2, {"one", "1x", ""}}, {2, {"4294967297", "4", "3"}}};
  for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
    contexts = wants[i].contexts;
    memcpy(saysContexts, wants[i].says, sizeof wants[i].says);
    play("as many contexts as all want", 3, as_many_contexts);
  }
  contexts = 2;
  memcpy(saysContexts, wants[1].says, sizeof wants[1].says);
  play("as many contexts between hosts", 3, as_many_elsewhere);
  memset(saysContexts, 0, sizeof saysContexts);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "card_places.h"

#include "card_rig.h"

static void put_there(uint64_t round) {
  struct posting p = card_put(0, 1 - rank, &near, 0, &far, 0, 70000);
  card_signal(&p, 0, 1 - rank, 0, 1);
  post(&p);
  await_signal(0, 0, round);
  meet();
}

/* NCCL makes a communicator's contexts one by one, and where one is refused it neither uses the others nor gives them back: nor have they places. */
static void half_refused(void) {
  struct card first, second, third;
  void *half = another_instance(), *whole = another_instance();
  CHECK(cards_connect_of(half, &first) && !cards_connect_of(half, &second), "of two contexts one has a place");
  CHECK(cards_connect_of(whole, &third), "a communicator without GIN has places: %s", lastWarning);
  CHECK(gin->destroyContext(third.ginContext) == 0);
  CHECK(gin->closeColl(third.coll) == 0 && gin->closeColl(second.coll) == 0);
  CHECK(gin->destroyContext(first.ginContext) == 0 && gin->closeColl(first.coll) == 0); /* later versions may */
  CHECK(gin->finalize(half) == 0 && gin->finalize(whole) == 0);
}

/* What a communicator leaves behind for ever, and nobody uses any more, has no place. */
static void left_behind(void) {
  struct card left, next;
  void *gone = another_instance(), *instance = another_instance();
  CHECK(cards_connect_of(gone, &left) && !cards_connect_of(instance, &next), "there is one place");
  CHECK(gin->closeColl(next.coll) == 0);
  __atomic_store_n(cards_expected(&left).captured, DYN_EXPECTED_NOTHING, __ATOMIC_RELEASE);
  meet();
  CHECK(cards_connect_of(instance, &next), "what was left has a place: %s", lastWarning);
  CHECK(gin->destroyContext(next.ginContext) == 0 && gin->closeColl(next.coll) == 0 && gin->finalize(instance) == 0);
  CHECK(gin->destroyContext(left.ginContext) == 0 && gin->closeColl(left.coll) == 0 && gin->finalize(gone) == 0);
}

/* There are never more blocks than can stay beside programs, of which others have so many: what would be more is refused, on all ranks, and said. */
static void most_stay(int others, int all) {
  struct card most[16], none;
  const int count = (all - others) / 2;
  char wanted[160];
  void *const instance = another_instance();
  for (int i = 0; i < count; i++) CHECK(cards_connect_of(instance, &most[i]), "%s", lastWarning);
  snprintf(wanted, sizeof wanted, "2 blocks for 1 contexts are more than may stay on a GPU beside programs, %d, of which others have %d", all, all);
  const uint64_t since = ms_now();
  void *const refused = another_instance();
  CHECK(!cards_connect_of(refused, &none) && ms_now() - since < 10000 && strstr(lastWarning, wanted) != NULL, "%s", lastWarning);
  CHECK(gin->closeColl(none.coll) == 0 && gin->finalize(refused) == 0);
  CHECK(gin->destroyContext(most[count - 1].ginContext) == 0 && gin->closeColl(most[count - 1].coll) == 0);
  half_refused();
  left_behind();
  for (int i = 0; i < count - 1; i++) CHECK(gin->destroyContext(most[i].ginContext) == 0 && gin->closeColl(most[i].coll) == 0);
  CHECK(gin->finalize(instance) == 0);
}

/* Both ranks on one GPU, where each has half of the places. */
static void sharing(void) {
  cards_begin_small();
  most_stay(2 * CONTEXTS, 12);
  put_there(1);
  cards_finish();
}

/* Cards of all connections together leave places on the GPU: each has fewer blocks that only help where there are more of them. */
static void crowd(void) {
  enum { MORE = 6 };
  struct card more[MORE];
  cards_begin_small();
  put_there(1);
  CHECK(cardsGrid() == 2 + 16, "%u blocks of one of two", cardsGrid());
  for (int i = 0; i < MORE; i++) cards_connect_one(&more[i]);
  usleep(1300000); /* those that were started before have gone */
  put_there(2);
  CHECK(cardsGrid() == 2 + 64 / (CONTEXTS + MORE), "%u blocks of one of %d", cardsGrid(), CONTEXTS + MORE);
  most_stay(2 * (CONTEXTS + MORE), 24);
  for (int i = 0; i < MORE; i++) CHECK(gin->destroyContext(more[i].ginContext) == 0 && gin->closeColl(more[i].coll) == 0);
  usleep(1300000);
  put_there(3);
  CHECK(cardsGrid() == 2 + 16, "%u blocks, when the others have gone", cardsGrid());
  cards_finish();
}

void play_crowd(void) { play("crowd", 2, -1, crowd); }
void play_sharing(void) { play("sharing", 2, -1, sharing); }

/* SPDX-License-Identifier: Apache-2.0 */
#include "launches.h"

#include <stdlib.h>
#include <string.h>

#include "../../host/readable.h"
#include "../say.h"
#include "gdaki_abi.h"
#include "places.h"

/* What tests plant. 4: launches go though none stands behind them. 5: one stays until it has found that none does. 6: with a context those
 * of others may go, too. */
#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0
#endif

enum {
  MOST_HELPERS = 64, /* of all of a process's cards on a GPU: queues' blocks, which cannot be left out, are to find a place, and the program's kernels */
  IDLE_US = 3000,
  WATCH_US = 1000, /* that a watch stays with nothing to do, if another launch stands behind it */
  FED_LOOK = 3,    /* a look at host memory takes so many times as long */
  LATE_MS = 1000,  /* since something was put: so long launches follow each other, and none goes before the next one is there, if nobody announces kernels */
  ALONE_MS = 300,  /* that a launch without a successor stays behind the last request where kernels are announced: who frees memory waits for it, each time */
  REPLAY_MS = 100, /* that a watch without a successor stays for a replay that was launched when whoever has CUDA's lock took it, and begins later */
  QUERY_MS = 20,   /* between questions whether CUDA has met an error */
};

static uint32_t idle_looks(void) {
  const char *text = getenv("DYNAMICCL_CARRIER_IDLE_US");
  long us = text == NULL ? 0 : atol(text);
  if (us < 1 || us > 10000000) us = IDLE_US;
  return (uint32_t)us * 2; /* a look takes about 0.5 us on a GPU of 2022 */
}

void nic_begin(struct nic_card *card) {
  card->nic.watchNs = WATCH_US * 1000;
  card->told[NIC_IDLE_LOOKS] = ~idle_looks(); /* so that it is told */
  card->usedNs = carrier_now_ns();            /* so it is started at once */
  nic_lapse(card, true);
}

/* What the GPU writes to the host: it goes with the context, which the program may destroy at any time. */
static bool is_there(const struct nic_card *card) { return dyn_readable(card->shared); }

/* What the kernel is to be told. False: it was. */
static bool is_news(struct nic_card *card) {
  struct carrier *c = card->carrier;
  uint32_t *now = card->shared->control;
  pthread_mutex_lock(&c->instance->lock); /* another connection's thread may be the first to see others */
  const struct carrier_faults faults = c->instance->faults;
  pthread_mutex_unlock(&c->instance->lock);
  now[NIC_STOP] = 0;
  now[NIC_GONE] = now[NIC_DEAD] = 0;
  for (int r = 0; r < c->nRanks && !card->nic.fed; r++) { /* else put.c sees to it, and to other faults */
    now[NIC_GONE] |= (uint32_t)c->peers[r].gone << r;
    now[NIC_DEAD] |= (uint32_t)(faults.deadRank == r || faults.deadRank == c->rank) << r;
  }
  now[NIC_LATENCY_NS] = card->nic.fed ? 0 : faults.latencyNs < UINT32_MAX ? (uint32_t)faults.latencyNs : UINT32_MAX;
  now[NIC_BYTES_PER_US] = card->nic.fed ? 0 : faults.gbs == 0 ? 0 : faults.gbs < 1e-3 ? 1 : (uint32_t)(faults.gbs * 1000);
  now[NIC_IDLE_LOOKS] = idle_looks() / (card->nic.fed ? FED_LOOK : 1);
  return memcmp(now, card->told, sizeof card->told) != 0;
}

static bool tell(struct nic_card *card) {
  memcpy(card->told, card->shared->control, sizeof card->told);
  return !carrier_failed(nic_kernel_fill(card->kernel, (carrier_address)(uintptr_t)card->nic.control, card->shared->control, sizeof card->told),
                         "writing what a kernel is to read");
}

/* Requests that were rung for and not done, of peers for whom anything is done. While no kernel is there to look at doorbells
 * they are copied here, again and again: posters that told the host themselves would take longer for every request. */
static bool is_behind(struct nic_card *card) {
  const struct nic_shared *s = card->shared;
  if (!card->nic.fed && !nic_kernel_looked(card->kernel, card->shared->doorbells, (carrier_address)(uintptr_t)card->nic.doorbells, sizeof s->doorbells, &card->broken)) return false;
  for (int peer = 0; peer < card->nic.nRanks; peer++)
    for (int side = 0; side < NIC_SIDES && !(card->told[NIC_DEAD] >> peer & 1); side++)
      if (__atomic_load_n(&s->doorbells[peer * NIC_SIDES + side], __ATOMIC_ACQUIRE) != s->report.consumed[peer][side]) return true;
  return false;
}

static void warn_of_failure(struct nic_card *card) {
  static const char *const why[] = {"", "a put or signal is not within registered memory", "a request of a kind that is not known", "a peer is gone"};
  const struct nic_report *report = &card->shared->report;
  uint32_t failure = *(const volatile uint32_t *)&report->failed;
  if (failure == NIC_FINE || card->said) return;
  card->said = true;
  carrier_warn("rank %d to rank %u: %s: nothing more goes there on this context", card->carrier->rank, report->peer,
               why[failure < sizeof why / sizeof *why ? failure : NIC_BAD_REQUEST]);
}

static uint32_t told_of(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static uint32_t asked_of(const struct nic_card *card) { return __atomic_load_n(card->carrier->instance->expected.asked, __ATOMIC_SEQ_CST); }

/* There may be graphs whose kernels put, which are replayed without a word. */
static bool is_captured(const struct nic_card *card) { return __atomic_load_n(card->carrier->instance->expected.captured, __ATOMIC_SEQ_CST) == DYN_EXPECTED_GRAPHS; }

/* The last launch does something or is expected to, something was done not long ago, or a kernel that will do something is just being launched. */
static bool is_in_use(struct nic_card *card, uint64_t now) {
  const uint32_t used = told_of(&card->shared->report.used), asked = asked_of(card);
  if (used != card->used || used == card->nic.number || asked != card->asked || is_captured(card)) card->usedNs = now;
  card->used = used;
  card->asked = asked;
  return !card->ends && now - card->usedNs < LATE_MS * (uint64_t)1000000;
}

/* Launches below this one may end. */
static void let_end(struct nic_card *card, uint32_t number) { __atomic_store_n(&card->shared->report.next, number, __ATOMIC_RELEASE); }
static void let_all_end(struct nic_card *card) {
  if (is_there(card)) let_end(card, card->nic.number + 1);
}

void nic_lapse(struct nic_card *card, bool lapses) {
  if (card->lapsed == lapses) return;
  card->lapsed = lapses;
  __atomic_fetch_add(&card->carrier->instance->lapsed, lapses ? 1 : -1, __ATOMIC_SEQ_CST);
}

/* Launches cease. Who asks for a kernel meanwhile sees that there is none until the next turn's start, for the last launch may be over by itself
 * (nicMayEnd), and is, where they had ceased before. */
static void cease(struct nic_card *card) {
  nic_lapse(card, true);
  if (asked_of(card) == card->asked) let_all_end(card);
}

static unsigned blocks(const struct nic_card *card) {
  const unsigned cards = nic_beside(&card->carrier->home), share = MOST_HELPERS / (cards > 0 ? cards : 1);
  return (unsigned)card->nic.nRanks + (card->helpers < share ? card->helpers : share);
}

static void start(struct nic_card *card) {
  card->nic.number++;
  card->nic.leastNs = is_captured(card) ? REPLAY_MS * 1000000u : 0;
  card->nic.lateNs = (is_captured(card) || asked_of(card) == 0 ? LATE_MS : ALONE_MS) * 1000000u;
  card->broken = !nic_kernel_start(card->kernel, &card->nic, blocks(card));
  card->runs = !card->broken;
  if (card->runs && CARRIER_MISTAKE != 5) let_end(card, card->nic.number + (CARRIER_MISTAKE == 4));
  nic_lapse(card, false);
}

/* A launch ends only when the next one stands in the stream behind it, so where this thread is kept away for long, by who has CUDA's
 * lock, the GPU has one all the same that needs nobody to start it. As soon as a launch's watch is there the next one is made, while
 * the card is in use, or expected to be; then the last one may end, and doorbells are looked at here. */
void nic_progress(struct nic_card *card) {
  struct carrier_entered entered;
  const uint64_t now = carrier_now_ns();
  if (!card->nic.fed) carrier_watch(card->carrier);
  if (!is_there(card) || !dyn_readable(card->carrier->instance->expected.asked)) card->broken = true; /* which goes first nobody says */
  else warn_of_failure(card);
  if (card->broken) {
    nic_lapse(card, false);
    return;
  }
  const bool isLast = told_of(&card->shared->report.begun) == card->nic.number, inUse = is_in_use(card, now), news = is_news(card);
  if (isLast && !inUse) cease(card);
  if (card->runs && !news && !isLast && now - card->askedNs < QUERY_MS * (uint64_t)1000000) return; /* without CUDA, whose lock the program may want */
  if (card->nic.fed && !card->runs && !inUse && !news && !is_behind(card)) return; /* its thread asks on and on */
  if (!carrier_enter(&card->carrier->home, &entered)) return;
  card->askedNs = now;
  if (news) card->broken = !tell(card);
  if (card->runs && nic_kernel_ended(card->kernel, &card->broken)) card->runs = false;
  if (!card->broken && (inUse ? isLast || !card->runs : !card->runs && is_behind(card))) start(card);
  carrier_leave(&entered);
}

bool nic_failed(struct nic_card *card) { return card->broken || !is_there(card) || *(const volatile uint32_t *)&card->shared->report.failed != NIC_FINE; }

/* Nothing comes behind its launches, and who frees memory waits for them. Of version 11 NCCL's thread has ended by then, so it is all of the
 * communicator's; with version 14 the connection's goes on with other contexts, whose kernels may be waited for by the program's. */
void nic_let_go(struct nic_card *card) {
  if (card->port->layout == GDAKI_200 && CARRIER_MISTAKE != 6) {
    let_all_end(card);
    return;
  }
  for (struct nic_card *other = card->carrier->instance->card; other != NULL; other = other->other)
    if (other->shared != NULL) let_all_end(other);
}

/* What others of the connection are told is the affair of who launches them, so nothing is asked anew. */
void nic_stop(struct nic_card *card) {
  if (card->nic.number == 0) return;
  memcpy(card->shared->control, card->told, sizeof card->told);
  card->shared->control[NIC_STOP] = 1;
  tell(card);
}

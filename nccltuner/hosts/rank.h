/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank of a communicator over several hosts, as it speaks to the hub: it says what its NCCL allows, promises to take plans and takes
 * them, and rank 0 proposes what its daemon publishes. Not in the rank's own thread, which meets this one at the fence and nowhere else.
 *
 * No socket, thread or clock: instants are arguments.
 */
#ifndef DYN_HOSTS_RANK_H
#define DYN_HOSTS_RANK_H

#include "fence.h"
#include "message.h"

/* Only its test sets this: each number plants one mistake that the test has to find. */
#ifndef DYN_RANK_MUTATE
#define DYN_RANK_MUTATE 0
#endif
#define DYN_RANK_MUTATE_MARKS 1    /* what NCCL marks is not looked at */
#define DYN_RANK_MUTATE_UNFIT 2    /* nor whether the plan is whole */
#define DYN_RANK_MUTATE_STALE 3    /* a plan buffer that was written meanwhile is proposed */
#define DYN_RANK_MUTATE_LOSES 4    /* a rank that is cut off takes its fence down */
#define DYN_RANK_MUTATE_GIN 5      /* kernels over GIN are promised that this rank has not */
#define DYN_RANK_MUTATE_EXCHANGES 6 /* plans are promised before it is known whether this rank counts AllToAll */
#define DYN_RANK_MUTATE_GATHERS 7   /* a number of channels is promised of what may be broadcasts for all that this rank knows */

/* Where the rank's own words are: of its record, mapped as long as this is used. */
struct dyn_hosts_place {
  struct dyn_record *record;
  struct dyn_rank *self, *others; /* others: the slot for all on other hosts, once hostRanks is known */
  uint64_t commId, nonce, host;
  uint32_t nRanks, rank;
  bool gin;                      /* this rank can make GIN's own communicator, and wants to on several hosts; rank 0: with record->ginId */
};

struct dyn_hosts_rank {
  struct dyn_hosts_place place;
  struct dyn_fence fence;
  bool together;      /* all ranks have met */
  bool elsewhere;     /* on another host than rank 0, whose daemon plans: what calls took goes there */
  bool proposing;     /* rank 0: the hub has not answered yet */
  bool toldOnce;
  uint32_t verdict;   /* DYN_ALL_*: whether GIN's own communicator is made, with id */
  struct dyn_hosts_gin gin;
  uint32_t gone;      /* 1 + a rank that has gone and does not come back; 0: none is known */
  uint64_t question;  /* that the fence was raised for last */
  uint64_t committed; /* version of the newest plan that came into force, or will */
  uint64_t proposed;  /* rank 0: the last one */
  uint64_t againNs;   /* rank 0: not to be proposed again before */
  struct dyn_hosts_word told;
  /* To the hub; payload: message.bytes of it. */
  void (*send)(void *to, const struct dyn_hosts_message *message, const void *payload);
  /* Rank 0: what a call or a put took on a rank elsewhere. */
  void (*hear)(const struct dyn_sample *sample);
  void *to;
};

/* Not all ranks are on this host, so those of others are looked for. */
void dyn_hosts_rank_apart(struct dyn_hosts_rank *r);
/* A connection to the hub begins. */
void dyn_hosts_rank_greet(struct dyn_hosts_rank *r);
/* False: this is no hub of ours, and the connection is to be closed. */
bool dyn_hosts_rank_take(struct dyn_hosts_rank *r, const struct dyn_hosts_message *message, const void *payload, uint64_t nowNs);
/* While it is connected. */
void dyn_hosts_rank_tick(struct dyn_hosts_rank *r, uint64_t nowNs);
/* What so many calls took, or puts, that this rank is told of, once it is together and elsewhere. */
void dyn_hosts_rank_tell(struct dyn_hosts_rank *r, enum dyn_hosts_kind kind, const struct dyn_sample *samples, uint32_t count);
/* This rank does not want GIN any more; the others may have begun. */
void dyn_hosts_rank_decline(struct dyn_hosts_rank *r);
/* It leaves, of itself: nobody is to take it for dead. */
void dyn_hosts_rank_bye(const struct dyn_hosts_rank *r);
/* The connection is gone, for now. */
void dyn_hosts_rank_cut(struct dyn_hosts_rank *r);
/* And will not come again. */
void dyn_hosts_rank_parted(struct dyn_hosts_rank *r);

#endif

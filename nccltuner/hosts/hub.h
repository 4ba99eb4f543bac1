/* SPDX-License-Identifier: Apache-2.0
 *
 * The hub: in the process that made a communicator's ncclUniqueId, where all its ranks meet. It asks all of them whether a plan may
 * come into force at an epoch, and decides: only if each has promised, on its connection of now. Whoever is silent, refuses or goes
 * before that has it dropped; once decided it stays so, and a rank that was cut off in between is told when it comes back. An epoch is a
 * number of calls: ranks that do not all count the same ones never have a plan.
 *
 * No socket, thread or clock: connections are numbers, instants are arguments.
 */
#ifndef DYN_HUB_H
#define DYN_HUB_H

#include <stdbool.h>

#include "message.h"

/* Only its test sets this: each number plants one mistake that the test has to find. */
#ifndef DYN_HUB_MUTATE
#define DYN_HUB_MUTATE 0
#endif
#define DYN_HUB_MUTATE_MAJORITY 1 /* one rank need not promise */
#define DYN_HUB_MUTATE_OLD 2      /* promises to an earlier question count */
#define DYN_HUB_MUTATE_FORGET 3   /* who comes back is told that it was dropped */
#define DYN_HUB_MUTATE_GONE 4     /* whoever goes after its promise does not have it dropped, and what is decided is not kept for it */
#define DYN_HUB_MUTATE_LAST 5     /* what was decided is known of the last question alone */
#define DYN_HUB_MUTATE_WISH 7     /* one rank need not want what is begun */
#define DYN_HUB_MUTATE_TWICE 8    /* a rank that no longer wants it has the verdict changed */
#define DYN_HUB_MUTATE_BACK 9     /* a rank that came back in time is told to be gone */
#define DYN_HUB_MUTATE_APART 10   /* ranks that count AllToAll and ranks that do not have plans together */
#define DYN_HUB_MUTATE_AGAIN 11   /* a rank that no longer wants it is taken to want it again */
#define DYN_HUB_MUTATE_GATHERS 12 /* one rank elsewhere knows of broadcasts in groups, and rank 0's daemon takes it that all do */
#define DYN_HUB_MUTATE_ANEW 6     /* who asks about what was forgotten is taken for a new one */

struct dyn_hub_comm;
struct dyn_hub {
  struct dyn_hub_comm *comms;
  /* To a connection; payload: message.bytes of it. What cannot be sent is a connection that is lost, of which the hub hears later. */
  void (*send)(void *to, int connection, const struct dyn_hosts_message *message, const void *payload);
  void (*drop)(void *to, int connection); /* another one took its place: it is to be closed, and nothing is said of it */
  /* A rank of the communicator is in the hub's own process; NULL: so it is. Where GIN is, the hub must not end before them. */
  bool (*has)(void *to, uint64_t commId);
  void *to;
};

/* False: the connection is to be closed, and lost is not called for it. */
bool dyn_hub_take(struct dyn_hub *hub, int connection, const struct dyn_hosts_message *message, const void *payload, uint64_t nowNs);
void dyn_hub_lost(struct dyn_hub *hub, int connection);
/* Drops questions that a rank leaves unanswered. */
void dyn_hub_tick(struct dyn_hub *hub, uint64_t nowNs);
void dyn_hub_free(struct dyn_hub *hub);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of this process, between the thread that speaks for them (hosts.c), who asks what it has heard (hosts_gin.c), and what that
 * thread tells of their calls and puts (hosts_samples.c).
 */
#ifndef DYN_SPEAKER_H
#define DYN_SPEAKER_H

#include <pthread.h>

#include "hosts.h"
#include "wire.h"

/* A rank of this process. */
struct speaker {
  struct dyn_hosts_rank rank; /* first: its fence is what the plugin knows it by */
  struct speaker *next;
  struct dyn_root root;
  struct dyn_wire wire;
  bool over;  /* it needs nobody, or has given up */
  bool spoke; /* on this connection */
  bool broken;
  bool away;  /* it has not reached the hub for DYN_HOSTS_GONE_NS, by the clock of the thread that seeks it */
  uint64_t beganNs, triedNs, soughtNs; /* soughtNs: since when it has heard nothing of the hub; 0: it is there */
  dyn_hosts_logger log;
};

extern pthread_mutex_t dyn_speakers_lock;
extern struct speaker *dyn_speakers; /* under it, and all that is in them */

/* What was heard since the last time goes into the ring; looks: and what was told since the last look, where it is wanted. */
void dyn_speakers_exchange(bool looks);

#endif

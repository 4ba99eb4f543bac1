/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the sweep shares: its rank processes meet here, and each rank's forced plugin reads the choice here.
 * Every field is read and written through __atomic builtins or on the far side of a barrier.
 */
#ifndef DYN_SWEEP_H
#define DYN_SWEEP_H

#include <stdint.h>

#define SWEEP_MAX_RANKS 16
#define SWEEP_MAX_CALLS 1000
#define SWEEP_PATH_ENV "DYNAMICCL_SWEEP_SHARED" /* the file that is mapped */
#define SWEEP_RANK_ENV "DYNAMICCL_SWEEP_RANK"

struct sweep_rank {
  int *mask;   /* the plugin says where NCCL polls its activation mask; an address of this rank's process */
  int refused; /* the plugin: NCCL marked the forced entry -1 */
  int calls;   /* the plugin: Coll events seen */
  int channels;
  char algorithm[16]; /* as NCCL's Coll event names what ran */
  char protocol[16];
  int gridChannels; /* blocks of the kernel in the captured graph: what a replay runs */
  int wrong;        /* the result was not the expected one */
  double estimateUs;
  double medianUs;
  float seriesUs[SWEEP_MAX_CALLS]; /* single calls, for the noise */
};

struct sweep_shared {
  int algorithm; /* forced, NCCL's number; -1: outputs stay untouched */
  int protocol;
  int channels;
  int arrived; /* barrier */
  int generation;
  int point; /* the point being measured; the parent's watchdog looks at it */
  int beat;  /* grows with every barrier */
  int stop;
  int nccl;
  char uniqueId[128];
  struct sweep_rank ranks[SWEEP_MAX_RANKS];
};

#endif

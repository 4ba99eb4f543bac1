/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HARNESS_ASK_H
#define HARNESS_ASK_H

#include "comm.h"

/* What ran. */
struct choice {
  int algo, proto, nWarps;
  int nMaxChannels; /* asked for */
  int chosen;       /* by the tuner */
  int device;       /* NCCL's device kernel for LL */
  double costNs, defaultNs, bestNs;
};

/* Cost table, tuner, and what runs. 0, or -1 with rank->error: the tuner broke a rule. */
int ask_tuner(struct comm *comm, struct rank *rank, int func, uint64_t bytes, int numPipeOps, struct choice *choice);

/* The run ends because of the tuner: -1. */
int ask_broke_rule(struct rank *rank, const struct comm *comm, const char *what);

#endif

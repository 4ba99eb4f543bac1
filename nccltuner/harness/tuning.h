/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's own tuning: its cost table with the -1 entries, its choice from that table, its channels and its schedule.
 * Facts are from NCCL 2.28.9 and 2.30.7, which agree in all that is used here; lines are those of v2.28.9-1.
 * What is left out, because it is off or cannot occur here: NVLS (NCCL_NVLS_ENABLE=0), CollNet (no network
 * that has it), fp8, devices other than Hopper.
 */
#ifndef HARNESS_TUNING_H
#define HARNESS_TUNING_H

#include <stddef.h>
#include <stdint.h>

#define NUM_FUNCS 5
#define NUM_ALGOS 7  /* NCCL_NUM_ALGORITHMS, src/include/plugin/nccl_tuner.h */
#define NUM_PROTOS 3 /* NCCL_NUM_PROTOCOLS */

enum { FUNC_BROADCAST, FUNC_REDUCE, FUNC_ALLGATHER, FUNC_REDUCESCATTER, FUNC_ALLREDUCE };
enum { ALGO_TREE, ALGO_RING, ALGO_COLLNET_DIRECT, ALGO_COLLNET_CHAIN, ALGO_NVLS, ALGO_NVLS_TREE, ALGO_PAT };
enum { PROTO_LL, PROTO_LL128, PROTO_SIMPLE };

struct tuning {
  int nRanks, nNodes;
  int nChannels; /* comm->nChannels: no collective runs on more */
  int userForced; /* NCCL_ALGO or NCCL_PROTO is set */
  float bandwidths[NUM_FUNCS][NUM_ALGOS][NUM_PROTOS]; /* GB/s; 0: disabled, -1 in every cost table */
  float latencies[NUM_FUNCS][NUM_ALGOS][NUM_PROTOS];  /* us */
};

/* ll128Net: LL128 may cross the network (GPU and NIC at most PATH_PXN apart). algoEnv and protoEnv are NCCL_ALGO and
 * NCCL_PROTO, NULL when not set. 0, or -1 with a message. */
int tuning_init(struct tuning *tuning, int nRanks, int nNodes, int nChannels, int ll128Net, const char *algoEnv,
                const char *protoEnv, char *error, size_t errorSize);
/* initCollCostTable and updateCollCostTable: times in us, -1 where NCCL ignores the entry. */
void tuning_cost_table(const struct tuning *tuning, int func, size_t bytes, int numPipeOps,
                       float table[NUM_ALGOS][NUM_PROTOS]);
/* The entries that are not -1: bit 3 * algorithm + protocol. */
uint32_t tuning_allowed(float table[NUM_ALGOS][NUM_PROTOS]);
/* topoGetAlgoInfo's first half: the cheapest entry >= 0; -1 when there is none, which fails the collective. */
int tuning_select(float table[NUM_ALGOS][NUM_PROTOS], int *algo, int *proto);
/* topoGetAlgoInfo's second half: NCCL's own number of channels and warps. */
int tuning_channels(const struct tuning *tuning, int algo, int proto, size_t bytes, int *nWarps);

/* One collective of a plan, as scheduleCollTasksToPlan sees it. */
struct tuning_task {
  size_t count; /* elements, per rank where NCCL counts per rank */
  int elementSize;
  int nMaxChannels; /* asked for, by the tuner or by NCCL */
  int channelLo, nChannels; /* out: where it really runs */
};
/* Channels that each task of one plan really runs on. All tasks have the same func and protocol. */
void tuning_schedule(const struct tuning *tuning, int func, int proto, struct tuning_task *tasks, int numTasks);

const char *tuning_algo_name(int algo);   /* ncclAlgoToString, src/collectives.cc:58 */
const char *tuning_proto_name(int proto); /* ncclProtoToString, src/collectives.cc:71 */

#endif

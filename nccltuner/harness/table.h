/* SPDX-License-Identifier: Apache-2.0
 *
 * A recorded table: what every choice cost on a real machine. CSV with the columns
 *   machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us
 * where path is default (NCCL's own choice), collective (a forced choice) or another path, which is not reachable
 * through the tuner plugin and is skipped.
 *
 * Rules for what is not in the table:
 * - size: the recorded size nearest in log2, the smaller one when two are equally near;
 * - channels: linear in log2(channels) between the two recorded counts around, the outermost recorded count outside;
 * - the same choice recorded twice: the mean.
 */
#ifndef HARNESS_TABLE_H
#define HARNESS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TABLE_COLLECTIVES 5 /* ncclFunc_t 0..4: what getCollInfo is asked about */
#define TABLE_ALGORITHMS 7
#define TABLE_PROTOCOLS 3
#define TABLE_SIZES 32
#define TABLE_POINTS 16

struct table_point {
  int channels;
  int samples; /* rows that were averaged */
  double costNs;
};

/* Everything recorded for one collective and size. */
struct table_cell {
  uint64_t bytes;
  double defaultNs; /* 0: not recorded */
  int defaultSamples;
  int numPoints[TABLE_ALGORITHMS][TABLE_PROTOCOLS];
  struct table_point points[TABLE_ALGORITHMS][TABLE_PROTOCOLS][TABLE_POINTS]; /* by channels, ascending */
};

struct table {
  char path[4096];
  char machine[64], transport[32], condition[32];
  int nRanks, nNodes;
  int rows;
  int numCells[TABLE_COLLECTIVES];
  struct table_cell *cells[TABLE_COLLECTIVES]; /* by bytes, ascending */
};

/* 0, or -1 with a message that names file, line, field and remedy. */
int table_load(struct table *table, const char *path, char *error, size_t errorSize);
/* The same from text in memory; the text is changed. */
int table_parse(struct table *table, const char *name, char *text, char *error, size_t errorSize);
void table_free(struct table *table);

/* Nearest recorded size; NULL: this collective is not in the table. */
const struct table_cell *table_find(const struct table *table, int collective, uint64_t bytes);
/* Cost of a choice; 0: this algorithm and protocol were not recorded at this size. */
double table_cost(const struct table_cell *cell, int algorithm, int protocol, int channels);

struct table_best {
  double costNs;
  int algorithm, protocol, channels; /* algorithm -1: NCCL's default is the best */
};
/* The cheapest choice that a tuner could make: default, or a recorded choice whose bit 3*algorithm+protocol is in
 * allowed (not marked -1 by NCCL) and whose channels do not exceed maxChannels. */
struct table_best table_best(const struct table_cell *cell, uint32_t allowed, int maxChannels);

int table_collective(const char *name);      /* ncclFunc_t, -1: not one of the five */
const char *table_collective_name(int func); /* as ncclFuncToString writes it */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Log of one rank: a header, then one record a getCollInfo call. Little endian, no padding, fixed sizes; a file that
 * ends inside a record belongs to a rank that was killed, and its last record is dropped. Read by package ranklog.
 */
#ifndef HARNESS_LOG_H
#define HARNESS_LOG_H

#include <stdint.h>

#define LOG_MAGIC 0x31474f4c4b4e4152u /* "RANKLOG1" */
#define LOG_VERSION 1

struct log_header { /* 48 bytes */
  uint64_t magic;
  uint32_t version;
  uint32_t recordBytes;
  uint64_t seed;
  uint32_t rank, nRanks;
  uint32_t nComms, nPhases;
  uint32_t ncclVersion;
  uint32_t reserved0;
};

#define LOG_CHOSEN 1     /* the tuner chose; else NCCL's default ran */
#define LOG_AGGREGATED 2 /* several collectives shared the call */

struct log_record { /* 40 bytes */
  uint64_t bytes;     /* as getCollInfo saw them */
  uint32_t seq;       /* getCollInfo call of the communicator, from 0 */
  uint32_t costNs;    /* recorded cost of what ran, without noise and faults; saturates */
  uint32_t defaultNs; /* of NCCL's default in this phase */
  uint32_t bestNs;    /* of the best choice in this phase */
  uint16_t comm;      /* index of the communicator in its process, the same on all ranks */
  uint16_t phase;
  uint8_t collective; /* ncclFunc_t */
  uint8_t algorithm;  /* NCCL_ALGO_*, what ran */
  uint8_t protocol;   /* NCCL_PROTO_* */
  uint8_t channels;   /* that really ran */
  uint8_t flags;      /* LOG_* */
  uint8_t maxChannels; /* asked for: by the tuner, or by NCCL */
  uint8_t reserved0[2];
  uint32_t check; /* FNV-1a over the 36 bytes before */
};

_Static_assert(sizeof(struct log_header) == 48 && sizeof(struct log_record) == 40, "the reader knows these sizes");

struct log_writer;
/* path: %r stands for the rank. NULL with a message when the file cannot be made. */
struct log_writer *log_open(const char *path, const struct log_header *header, char *error, unsigned long errorSize);
void log_add(struct log_writer *log, struct log_record *record);
/* 0, or -1 when not everything could be written. */
int log_close(struct log_writer *log);

/* path with %r replaced by the rank; 0 when it fits. */
int log_path(const char *path, unsigned rank, char *out, unsigned long size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A network card in software: what its kernel (nic.cuh) and the host that starts it (nic.c) share. One for each context of a
 * communicator.
 *
 * NCCL's device code for GIN of type GDAKI drives an NVIDIA NIC from the GPU: it writes work requests into a queue in GPU
 * memory and rings a doorbell, which on a NIC is a register. Here the doorbell is a word of GPU memory that a kernel of ours
 * looks at; it does what the request says, over the mappings of peers' memory, and writes the completion that NCCL waits for.
 *
 * Each peer, this rank itself too, has a main queue, for what goes to the peer, and a side queue for counters: NCCL puts a
 * request there that waits for a completion of the main queue, and one that adds to the counter. A block serves both, with a
 * warp for each; its other warps help to copy, and for what is large other blocks do.
 */
#ifndef DYN_NIC_H
#define DYN_NIC_H

#include <stdint.h>

enum {
  NIC_MAX_RANKS = 8,
  NIC_MAX_HELPERS = 32, /* blocks that copy what is large: as many as a warp has lanes */
  NIC_THREADS = 512,
  NIC_DEPTH = 512, /* requests of a queue, and completions; a power of two, at most 32,768 (the device code's 16 bits) */
  NIC_REQUEST_BYTES = 64,
  NIC_COMPLETION_BYTES = 64,
  NIC_WAIT_SPINS = 100,    /* looks at what the main queue has done, in shared memory: some microseconds */
  NIC_LATE_NS = 5000,      /* with faults on purpose: what is due within it is waited for on the spot */
  NIC_WARP_BYTES = 4096,   /* what is larger the whole block copies */
  NIC_BLOCK_BYTES = 65536, /* what is larger, other blocks too; and no part of theirs is smaller than half of this */
};

enum nic_side { NIC_MAIN, NIC_SIDE, NIC_SIDES };

/* Why a queue takes no requests any more. */
enum nic_failure {
  NIC_FINE,
  NIC_BAD_KEY,     /* memory that is not registered, or not so much of it */
  NIC_BAD_REQUEST, /* an operation, or a form of it, that NCCL 2.28.9 does not use */
  NIC_PEER_GONE,
};

struct nic_part { uint64_t at, bytes; }; /* registered memory of one rank, where this process has it mapped */

/* A copy of which other blocks make parts: each so many bytes, the last what is left; the first part is the queue's own block's.
 * The number comes last and says that the rest is there, and in its low bits how many blocks help: who does not must not look at
 * the rest, where the next job may be being written; it is not before all who help have answered. */
struct nic_job {
  uint64_t to, from, bytes, each;
  uint32_t number;
};
#define NIC_JOB_HELPERS 63u

enum { NIC_CONSUMED_BITS = 56 };
#define NIC_CONSUMED (((uint64_t)1 << NIC_CONSUMED_BITS) - 1)

/* Of the host, to a kernel that runs: words in GPU memory. */
enum nic_control {
  NIC_STOP,
  NIC_GONE,                        /* peers, a bit each: what is for them is done badly */
  NIC_DEAD,                        /* peers, likewise, for whom nothing is ever done: a fault on purpose */
  NIC_LATENCY_NS, NIC_BYTES_PER_US, /* faults, too; 0: none */
  NIC_IDLE_LOOKS,                  /* after so many looks at doorbells in vain the kernel ends */
  NIC_KEYS,                        /* changes with any of the keys; written alone */
  NIC_CONTROLS = 8,
};

/* Words of one launch, zeros at first. */
enum nic_launch {
  NIC_HELPERS, /* how many of the helping blocks are there */
  NIC_ENDED,   /* warps that served a queue */
  NIC_IDLE,    /* queues that nobody has posted to for long, a bit each */
  NIC_OVER,    /* all of them are: the kernel is to end */
  NIC_LAUNCHES,
};

/* Of a kernel, to the host. In host memory. */
struct nic_report {
  uint64_t consumed[NIC_MAX_RANKS][NIC_SIDES]; /* requests, when it ended */
  uint32_t failed; /* the first nic_failure */
  uint32_t peer;   /* of which peer's queue */
};

/* What the kernel is launched with. All but the report is in GPU memory. */
struct nic {
  int32_t rank, nRanks;
  const struct nic_part *keys; /* [nKeys][nRanks]; key 0 is none, so the first is [1] */
  uint32_t nKeys;
  uint64_t *doorbells;         /* [nRanks][NIC_SIDES]: requests that were rung for */
  uint64_t *consumed;          /* [nRanks][NIC_SIDES]: between launches; the highest byte: why the queue has failed */
  uint8_t *requests;           /* [nRanks][NIC_SIDES][NIC_DEPTH][NIC_REQUEST_BYTES] */
  uint8_t *completions;        /* likewise */
  uint64_t *known;             /* in the first of the structs that the device code has of queues: requests that are done */
  struct nic_job *jobs;        /* [nRanks] */
  uint32_t *copied;            /* [nRanks][NIC_MAX_HELPERS]: numbers of jobs */
  uint32_t *launch;            /* [NIC_LAUNCHES] */
  uint64_t *linkFreeNs;        /* of all contexts of a communicator: when what was put has left, with bytesPerUs */
  const uint32_t *control; /* [NIC_CONTROLS] */
  struct nic_report *report;
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A network card in software: what its kernel (nic.cuh) and the host that starts it (nic.c) share. One for each context of a
 * communicator.
 *
 * NCCL's device code for GIN of type GDAKI drives an NVIDIA NIC from the GPU: it writes work requests into a queue in GPU
 * memory, counts it as ready, and rings a doorbell, which on a NIC is a register. A kernel of ours looks at that count, or at the
 * doorbell (queues.h); it does what the request says, over the mappings of peers' memory, and writes the completion that NCCL waits
 * for. The doorbell is a word of GPU memory, which the host looks at while no kernel runs.
 *
 * A launch is four kernels, one behind the other: a watch of one warp, which stays until a request may be taken, and the card, which
 * stays until there has been none for a while; and both once more, the card with the blocks of queues alone. Neither these two nor the
 * first watch go before the next launch stands in the stream behind them: who would start the card when it is needed may be kept away
 * by then (nic_watch.cuh).
 *
 * Each peer, this rank itself too, has a main queue, for what goes to the peer, and a side queue for counters: NCCL puts a
 * request there that waits for a completion of the main queue, and one that adds to the counter. A block serves both, with a
 * warp for each; its other warps help to copy, and for what is large other blocks do.
 */
#ifndef DYN_NIC_H
#define DYN_NIC_H

#include <stdint.h>

#include "../expected.h"

enum {
  NIC_MAX_RANKS = 8,
  NIC_MAX_HELPERS = 32, /* blocks that copy what is large: as many as a warp has lanes */
  NIC_THREADS = 512,
  NIC_WATCH_THREADS = 32,
  NIC_DEEP = 10, /* loads of 16 bytes that a thread has under way: 64 KiB are a round of all that copy */
  NIC_DEPTH = 512, /* requests of a queue, and completions; a power of two, at most 32,768 (the device code's 16 bits) */
  NIC_REQUEST_BYTES = 64,
  NIC_COMPLETION_BYTES = 64,
  NIC_WAIT_SPINS = 100,    /* looks at what the main queue has done, in shared memory: some microseconds */
  NIC_LATE_NS = 5000,      /* with faults on purpose: what is due within it is waited for on the spot */
};

/* How a copy is shared. */
struct nic_sizes {
  uint32_t warp;     /* bytes; what is larger the whole block copies */
  uint32_t block;    /* what lies behind so many, other blocks: about what this one copies until they are asked and have answered */
  uint32_t partBits; /* a part of theirs has no less than 2 to the power of this */
};
#define NIC_SIZES ((struct nic_sizes){4096, 32768, 13})

enum nic_side { NIC_MAIN, NIC_SIDE, NIC_SIDES };

/* Why a queue takes no requests any more. */
enum nic_failure {
  NIC_FINE,
  NIC_BAD_KEY,     /* memory that is not registered, or not so much of it */
  NIC_BAD_REQUEST, /* an operation, or a form of it, that NCCL does not use */
  NIC_PEER_GONE,
};

struct nic_part { uint64_t at, bytes; }; /* registered memory of one rank, where this process has it mapped */

/* Of one queue, whatever its layout: how many requests may be taken, and how many posters know as done. */
struct nic_posted { uint64_t *rung, *known; };

/* A copy by other blocks, in parts of the same size but for the last, of which there is a power of two: nobody divides. Each word
 * has the job's number in its upper half, so that it needs no order among them: a job is there when all have the same. The
 * number's low bits say how many blocks help. The next job is not written before all who help have answered, nor is a request done
 * that they look at unasked. */
enum nic_job_word {
  NIC_JOB_TO, NIC_JOB_FROM = 2, /* addresses, the lower half first */
  NIC_JOB_BYTES = 4,
  NIC_JOB_BLOCKS,               /* of the request, the lower 16 bits of its place in the queue; which helper is the first, and of how many */
  NIC_JOB_WORDS,
  NIC_JOB_NEXT = NIC_JOB_WORDS, /* not of a job: as NIC_JOB_BLOCKS, of a request that as many blocks copy unasked when it is ready */
};
struct nic_job { uint64_t words[8]; }; /* the last one is free */
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
  NIC_LAUNCHES, /* of each of a launch's cards */
};

/* Of a kernel, to the host, and back. In host memory: the host needs no call of CUDA's, whose lock may be another thread's. */
struct nic_report {
  uint64_t consumed[NIC_MAX_RANKS][NIC_SIDES]; /* requests, when it ended */
  uint32_t failed; /* the first nic_failure */
  uint32_t peer;   /* of which peer's queue */
  uint32_t begun;  /* number of the last launch whose watch is there */
  uint32_t used;   /* number of the last launch that did anything */
  uint32_t next;   /* of the host: launches below it may end, for another stands in the stream behind them, or none is needed */
};

/* What the kernel is launched with. All but the report, and what was launched, is in GPU memory. */
struct nic {
  int32_t rank, nRanks;
  uint32_t number;             /* of the launch, which wraps */
  uint32_t watchNs, lateNs;    /* how long its watch stays with nothing to do; since the last request neither goes without a successor */
  uint32_t leastNs;            /* how long its watch stays at least, if no other launch stands behind it */
  uint32_t fed;                /* requests, completions and what was rung for are the host's, in its memory, and so are those who post */
  uint32_t followed, alone;    /* a card behind which the launch's other one stands; that one, which is there for when nobody can launch */
  uint64_t *usedNs;            /* when the last request was done */
  const struct nic_part *keys; /* [nKeys][nRanks]; key 0 is none, so the first is [1] */
  uint32_t nKeys;
  struct nic_sizes sizes;
  uint64_t *doorbells;         /* [nRanks][NIC_SIDES]: requests that were rung for; the host's to look at */
  uint64_t *consumed;          /* [nRanks][NIC_SIDES]: between launches; the highest byte: why the queue has failed */
  uint8_t *requests;           /* [nRanks][NIC_SIDES][NIC_DEPTH][NIC_REQUEST_BYTES] */
  uint8_t *completions;        /* likewise */
  const struct nic_posted *posted; /* [nRanks][NIC_SIDES]: words of the queues that the device code has */
  struct nic_job *jobs;        /* [nRanks] */
  uint32_t *copied;            /* [nRanks][NIC_MAX_HELPERS]: numbers of jobs */
  uint32_t *launch;            /* [NIC_LAUNCHES] */
  uint64_t *linkFreeNs;        /* of all contexts of a communicator: when what was put has left, with bytesPerUs */
  const uint32_t *control; /* [NIC_CONTROLS] */
  const uint32_t *launched; /* host memory: so many of the program's kernels that put were launched, */
  const uint32_t *ended;   /* and so many of them are over; DYN_EXPECTED_WORDS (expected.h) */
  const uint32_t *replayed; /* likewise, of those in CUDA graphs */
  struct nic_report *report;
};

#endif

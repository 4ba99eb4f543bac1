/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory border between rank processes (C, nccltuner/plugin) and the daemon (Go, nccltuner).
 * This file is the one truth: nccltuner/abi_gen.go is generated from it (go generate ./nccltuner), and a test asserts
 * every size and offset on both sides. Only fixed-width integers, every padding byte named, little endian.
 *
 * Two kinds of file live in DYNAMICCL_DIR, both created by ranks (a daemon that starts later finds them, a daemon that
 * dies leaves them working):
 *   comm-<commId as 16 hex digits>.shm   struct dyn_record, then nRanks times struct dyn_rank: agreement of one communicator
 *   ring-<pid>-<start time>.shm          struct dyn_ring, then DYN_RING_CELLS times struct dyn_sample: samples of one process
 *
 * "atomic" on a field means: every access after creation is a C11 / sync/atomic operation. Who writes it is named.
 */
#ifndef DYN_ABI_H
#define DYN_ABI_H

#include <stdint.h>

#define DYN_RECORD_MAGIC 0x31434552434e5944 /* "DYNCREC1" */
#define DYN_RING_MAGIC 0x31474e52434e5944   /* "DYNCRNG1" */
#define DYN_ABI_VERSION 16

#define DYN_NUM_ASKED 5       /* ncclFunc_t 0..4: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce; tuners are asked about these */
#define DYN_NUM_COLLECTIVES 10 /* and AllToAll, about which only we are asked (preload/device.h); and AllGather, ReduceScatter, AllReduce
                                  and AllToAll on memory that the program has registered (preload/windows.h), 4 more than on other memory */
#define DYN_NUM_BUCKETS 48    /* floor(log2(bytes)); zero bytes are never tuned, larger sizes share the last bucket */
#define DYN_NUM_PLANS 8       /* plan buffers of a record */
#define DYN_NUM_CHANGES 8     /* length of the change log of a record */
#define DYN_NUM_ENTRIES 64    /* entries of a plan, entry 0 is never used */
#define DYN_NUM_TRIALS 12     /* exploration calls that one entry can carry */
#define DYN_MAX_SKIP 128      /* calls that may come before them: dyn_sample.entryCall counts to 255 */
#define DYN_MAX_RANKS 64      /* ranks of one communicator on one host */
#define DYN_EPOCH_CALLS 16    /* getCollInfo calls of one epoch; a record states its own */
#define DYN_RING_CELLS 65536  /* samples of one process, a power of two */

/* Actions are 32-bit words. 0 is NCCL's default: outputs untouched.
 * bits 0-3 path (DYN_PATH_*), 4-7 algorithm (NCCL_ALGO_*), 8-11 protocol (NCCL_PROTO_*), or contexts, 12-15 GIN backend (DYN_BACKEND_*),
 * 16-23 nChannels (0: NCCL's), 24-31 warps (0: NCCL's). A tuner plugin passes through what it cannot choose. */
#define DYN_PATH_DEFAULT 0
#define DYN_PATH_COLLECTIVE 1
#define DYN_PATH_SYMMETRIC 2 /* NCCL's own over load and store, on registered memory, by name: DYN_SYMMETRIC_* in the algorithm's place, protocol 0 */
#define DYN_PATH_LSA 3 /* our kernels over load and store: DYN_KERNEL_* in the algorithm's place, protocol 0, channels are CTAs */
#define DYN_PATH_GIN 4 /* our kernels that put and signal through the network: algorithm 0, channels are CTAs, in the protocol's place contexts that these share, CTA b having context b modulo it (0: as many as NCCL has granted), and DYN_GIN_FLAT */
#define DYN_ACTION_ALGO_SHIFT 4
#define DYN_ACTION_PROTO_SHIFT 8
#define DYN_ACTION_CONTEXTS_SHIFT 8
#define DYN_ACTION_BACKEND_SHIFT 12
#define DYN_GIN_CLOSELY 1 /* in the algorithm's place, in no plan and no sample: from the plugin to what launches the kernel, whose puts are timed in one call of 16 */
#define DYN_GIN_FLAT 8 /* above contexts: the kernel whose ranks put to each other alike, also where there is a hierarchical one */
#define DYN_GIN_SLOT_BYTES 262144 /* AllReduce over GIN of fewer bytes has no hierarchical kernel: ranks put whole buffers to each other */
#define DYN_ACTION_CHANNELS_SHIFT 16
#define DYN_ACTION_WARPS_SHIFT 24

/* NCCL's symmetric kernels; 0: whichever NCCL takes. Names are prefixes to NCCL: LL is LL or LLMC, ST is ST or STMC, LD is LD or LDMC. */
#define DYN_SYMMETRIC_LL 1   /* AllGather, ReduceScatter */
#define DYN_SYMMETRIC_LLMC 2 /* AllGather, by multicast, as all with MC */
#define DYN_SYMMETRIC_ST 3   /* AllGather */
#define DYN_SYMMETRIC_STMC 4
#define DYN_SYMMETRIC_TMA_ST 5
#define DYN_SYMMETRIC_TMA_STMC 6
#define DYN_SYMMETRIC_LD 7 /* ReduceScatter */
#define DYN_SYMMETRIC_LDMC 8
#define DYN_SYMMETRIC_TMA_LD 9
#define DYN_SYMMETRIC_AG_LL 10 /* AllReduce */
#define DYN_SYMMETRIC_AG_LLMC 11
#define DYN_SYMMETRIC_RS_LD_AG_ST 12
#define DYN_SYMMETRIC_RS_LDMC_AG_STMC 13
#define DYN_SYMMETRIC_RS_TMA_LD_AG_TMA_ST 14
#define DYN_NUM_SYMMETRIC 15

/* Kernels of path LSA. */
#define DYN_KERNEL_ONE_SHOT 0 /* every rank writes what it has into every peer's memory, flags inline */
#define DYN_KERNEL_TWO_SHOT 1 /* AllReduce: to the rank that adds it up, and its sums to all; flags inline */
#define DYN_KERNEL_BULK 2     /* without flags, with barriers; AllReduce in two shots */
#define DYN_KERNEL_DIRECT 3   /* the same, into and out of buffers that all ranks have registered, where they have */
#define DYN_NUM_KERNELS 4

/* Who drives the NIC for path GIN. */
#define DYN_BACKEND_GDAKI 1 /* the GPU */
#define DYN_BACKEND_PROXY 2 /* a thread of NCCL's */

/* What is compared for a while among calls is not to be in a graph for good (docs/design.md, decision 33). */
#define DYN_PLAN_DEFAULT_CALLS 1  /* those that go into no CUDA graph */
#define DYN_PLAN_DEFAULT_GRAPHS 2 /* those that do */

struct dyn_header {
  uint64_t magic;     /* written last by the creator: a file without it is not ready */
  uint32_t version;   /* DYN_ABI_VERSION; anything else: pass-through */
  uint32_t pidNamespace; /* of the creator, inode of /proc/self/ns/pid; pids in the file mean something there alone; 0: not known */
  uint64_t sizeBytes; /* of the whole file; a shorter file is torn: pass-through */
  uint64_t heartbeat; /* atomic, daemon: counts up while a daemon serves this file; never read for a choice */
};

/* What one bucket does. Of the calls of this collective and bucket since the entry (by id) came into force the first skip run base,
 * the next numTrials the trials, and base all that follow: an exploration always ends by itself, daemon or no daemon. */
struct dyn_entry {
  uint32_t id; /* changes whenever trials start anew; equal id in the next plan: j counts on */
  uint32_t base;
  uint32_t numTrials;
  uint32_t skip; /* at most DYN_MAX_SKIP */
  uint32_t trials[12];
};

/* Immutable from publication until the daemon has proof that no rank can need it (docs/design.md, decision 4). */
struct dyn_plan {
  uint64_t version;  /* equal to the version in dyn_record.newest when published */
  uint64_t checksum; /* dyn_plan_checksum over all words after this one */
  uint32_t numEntries;
  uint32_t sampleEvery; /* of so many epochs one is sampled (plugin/plan.h); power of two; 0: none. Where CUDA events time
                           calls each trial is sampled as well, but for an entry's first call (preload/watch.h) */
  uint8_t index[10][48]; /* [collective][bucket] -> entry, 0: pass through; buckets that try nothing share one for each base */
  uint32_t closeEpochs; /* so long from its coming into force puts over GIN are timed closely (DYN_GIN_CLOSELY): it ends by itself, daemon or no daemon */
  uint32_t defaults;    /* DYN_PLAN_DEFAULT_*: these calls pass through, whatever the entries say */
  struct dyn_entry entries[64];
};

/* One local rank's part of a record. */
struct dyn_rank {
  uint32_t pid;       /* written before the rank is counted in dyn_record.joined */
  int32_t rank;       /* rank in the communicator, -1: not known (no profiler) */
  uint64_t startTime; /* of the process, clock ticks since boot (/proc/PID/stat field 22) */
  uint64_t position;  /* atomic, rank: epoch << 8 | plan buffer + 1 in force (0: none); ~0: the rank has left */
  uint32_t flags;     /* atomic, rank: DYN_RANK_* */
  uint32_t ncclVersion; /* NCCL_VERSION code, 0: not known */
  uint64_t calls;     /* atomic, rank: getCollInfo calls, written once an epoch */
  uint64_t ignored;   /* atomic, rank: planned actions that NCCL's cost table marked -1 here, hence not chosen */
  uint64_t run;       /* DYNAMICCL_RUN: the `dynamiccld run` that started this process; 0: none */
  uint32_t memoryState; /* atomic, rank: DYN_MEMORY_* */
  uint32_t gin;         /* atomic, rank: DYN_GIN_*, and once granted backend << 8 | contexts << 16 | depth << 24; of the first backend that is made. depth: log2 of the entries of the shortest queue to a peer, plus 1; 0: not told */
  uint64_t memoryAt;    /* once offered: the address in this process, which peers in the same use */
  uint64_t memoryBytes; /* once offered */
  uint32_t ginSignals;  /* atomic, rank: once granted, of each context; and counters */
  uint32_t ginCounters;
  uint32_t transport;   /* what connects the communicator's ranks, as this one knows it: DYN_TRANSPORT_*; written when it joins */
  uint32_t nics;        /* that a node brings to it; 0: none, or not known */
  uint32_t ginSecond;   /* atomic, rank: as gin, of a second backend on the same communicator; 0: NCCL has none */
  uint32_t multiprocessors; /* of its GPU, as far as its process may use them; 0: not known */
  uint8_t gpu[16];      /* CUuuid of the GPU that this rank has, both before memoryState is told; 0: not known */
  uint8_t memory[64];   /* once offered: CUipcMemHandle */
  uint64_t agreed;      /* atomic, rank: version of the plan in force where ranks of several hosts have agreed on it; 0: none */
  /* atomic, rank: bit 31: seen; bit 3 * algorithm + protocol: not marked -1 in any call seen so far; bit 30: where LL is
   * answered NCCL runs its one device kernel: it asked so, and DYN_RANK_DEVICE_LL holds here. bit 26 + kernel: this rank
   * can run our kernel on any call of the bucket: all ranks have opened each other's memory, and it suffices. bit 23 +
   * backend: likewise by GIN, which is active; bit 22: it has several contexts there, and takes an action's number of them. On registered memory, where names decide: of Tree, Ring, NVLS and NVLSTree the bits
   * say that NCCL has not refused the name here, and of symmetric kernel s it is bit 5 + s up to 8, and 9 + s beyond. */
  uint32_t marks[10][48];
};

#define DYN_RANK_VETO 1        /* the user set NCCL_ALGO or NCCL_PROTO: the whole communicator passes through */
#define DYN_RANK_NO_PROFILER 2 /* the tuner was loaded without our profiler: stored choices only, no exploration */
#define DYN_RANK_PLAN_UNFIT 4  /* the plan in force failed its check: NCCL's defaults run in its place */
#define DYN_RANK_NO_EXPLORE 8  /* DYNAMICCL_NO_EXPLORE: stored choices only, no exploration */
#define DYN_RANK_FIXED_NUMERICS 16 /* DYNAMICCL_FIXED_NUMERICS: collectives that add up keep NCCL's choice */
#define DYN_RANK_DEVICE_LL 32 /* NCCL_SYM_NOWIN_ENABLE: from NCCL 2.29.2 on LL means a device kernel where there is one; where ranks share a process there is none */
#define DYN_RANK_NO_TIMES 64 /* this rank's calls are not timed (plugin/capture.c): stored choices only */
#define DYN_RANK_EVENT_TIMED 128 /* they are timed by CUDA events (preload/probe.c), trees on one node included */
#define DYN_RANK_BINDS 256 /* it will be DYN_MEMORY_BOUND before the program has the communicator; written before DYN_MEMORY_OPEN */

#define DYN_RANK_NAMES 512 /* with DYN_RANK_WINDOWS, likewise: NCCL takes names for calls on registered memory */
#define DYN_RANK_CTAS_SHIFT 24 /* in the highest byte: CTAs that the program lets a kernel of NCCL's have (NCCL_MAX_CTAS, ncclConfig_t.maxCTAs), 255 for more; 0: it does not say. Written before memoryState and gin are told */
#define DYN_RANK_CONTEXTS_SHIFT 20 /* in the 4 bits below it: contexts of GIN that the program lets a communicator have (NCCL_GIN_NCONTEXTS); 0: it does not say. Likewise */
#define DYN_RANK_WINDOWS 1024 /* with DYN_RANK_BINDS, likewise: it hears of all memory that the program registers, and calls there count as such */
#define DYN_RANK_SIMULATES 2048 /* it knows what NCCL asks about in a group that is only simulated. Written when it joins */
#define DYN_RANK_TELLS_APART 4096 /* it knows which questions of NCCL's are about one call (plugin/tuner.c). Written when it joins */
#define DYN_RANK_ALONE_GATHERS 8192 /* its NCCL asks about an AllGather for nothing else (plugin/everywhere.h). Written when it joins */
#define DYN_RANK_SEES_GATHERS 16384 /* with it: while NCCL asks about an AllGather, the preload library knows whether it has seen its call. Written when it joins */

#define DYN_RANK_SEES_AVERAGES 65536 /* with DYN_RANK_DEVICE_LL: it knows whether an AllReduce of the program's has averaged. Written when it joins */
#define DYN_RANK_SEES_WINDOWS 131072 /* it knows whether the program has registered memory with the communicator; from NCCL 2.29.2 to 2.30 on one node. Written when it joins */
#define DYN_RANK_NEW_GRAPHS 262144 /* DYNAMICCL_NEW_GRAPHS: its program updates no CUDA graph. Written when it joins */
#define DYN_RANK_SHARES_LL 32768 /* NCCL_SINGLE_PROC_MEM_REG_ENABLE: what DYN_RANK_DEVICE_LL says holds where ranks share a process, too. Written when it joins */

/* What connects the ranks of a communicator (plugin/transport.h). */
#define DYN_TRANSPORT_UNKNOWN 0
#define DYN_TRANSPORT_NVLINK 1 /* one node, every GPU of it reaches every other one by NVLink */
#define DYN_TRANSPORT_PCIE 2   /* one node without NVLink */
#define DYN_TRANSPORT_SOCKET 3 /* several nodes, NCCL's own network over sockets */
#define DYN_TRANSPORT_RDMA 4   /* several nodes, NCCL's own network over InfiniBand or RoCE */

/* Scratch memory of our kernels. Each rank offers its own and opens its peers' while NCCL makes the communicator. */
#define DYN_MEMORY_NONE 0    /* not decided yet */
#define DYN_MEMORY_OFFERED 1
#define DYN_MEMORY_REFUSED 2 /* this rank cannot, or will not; final */
#define DYN_MEMORY_OPEN 3    /* it has opened what all peers offered */
#define DYN_MEMORY_BOUND 4   /* and knows which of NCCL's communicators this is: it can run our kernels from now on */

/* GIN of one communicator on one rank, in the order of its life (kernels/host/gin_state.c). */
#define DYN_GIN_UNINITIALISED 0 /* not decided yet */
#define DYN_GIN_REFUSED 1       /* this rank cannot, or will not, or another one; final */
#define DYN_GIN_WANTED 2        /* it can, and waits for the others' word */
#define DYN_GIN_INITIALISING 3  /* all can: NCCL makes what it takes */
#define DYN_GIN_GRANTED 4       /* NCCL has said of which kind it is, and not that it works */
#define DYN_GIN_ACTIVE 5        /* every signal of the probe has come, from every peer, on every context */
#define DYN_GIN_IN_FLIGHT 6     /* a kernel was launched, and is not known to be over */
#define DYN_GIN_COMPLETE 7      /* all that were launched are over */
#define DYN_GIN_DESTROYED 8     /* all was given back */
#define DYN_GIN_FAILED 9        /* something did not come, or not succeed; nothing is given back */
#define DYN_NUM_GIN_STATES 10

/* What ranks of a communicator have decided about GIN in common: dyn_record.gin. */
#define DYN_ALL_UNDECIDED 0
#define DYN_ALL_BEGIN 1 /* all want it: from here on each takes part */
#define DYN_ALL_DECLINE 2

/* What a published plan knows of (plugin/answer.c). It never influences a choice. */
#define DYN_ANSWERED_RANKS 1   /* that all ranks have joined */
#define DYN_ANSWERED_KERNELS 2 /* and that all can run our kernels */

/* Ranks on several hosts: whether they have met (nccltuner/hosts). */
#define DYN_HOSTS_ONE 0     /* all ranks register here, or have not yet */
#define DYN_HOSTS_APART 1   /* they do not, and not all have met: NCCL's defaults */
#define DYN_HOSTS_MET 2     /* all have: plans come into force on all of them in one epoch */
#define DYN_HOSTS_PARTED 3  /* they have lost each other: the plan in force stays */

/* Why a plan that was proposed to ranks on several hosts is not in force. */
#define DYN_REFUSED_NOT 0
#define DYN_REFUSED_LATE 1  /* a rank had passed the epoch in which it was to begin */
#define DYN_REFUSED_BUSY 2  /* a rank has not begun the one before */
#define DYN_REFUSED_UNFIT 3 /* it failed a rank's check */
#define DYN_REFUSED_MARKS 4 /* NCCL marks -1 on a rank what it chooses */
#define DYN_REFUSED_USER 5  /* a rank's user wants it otherwise: DYN_RANK_VETO, NO_EXPLORE, FIXED_NUMERICS */
#define DYN_REFUSED_SILENT 6 /* a rank did not answer, or went */
#define DYN_REFUSED_APART 7 /* a rank counts AllToAll as a call, or does not, where rank 0 does otherwise: no plan ever comes into force */

/* Agreement of one communicator on one host. Layout in cache lines of 64 bytes. */
struct dyn_record {
  struct dyn_header header;
  uint64_t commId;
  uint32_t nRanks;
  uint32_t nNodes;
  uint32_t epochCalls;
  uint32_t maxChannels; /* 0: not known */
  uint32_t hosts;       /* atomic, ranks: DYN_HOSTS_* */
  uint32_t hostRanks;   /* atomic, ranks, before DYN_HOSTS_MET: so many of the ranks are on this host. The slot behind theirs then says of all on
                           other hosts together what binds the communicator: flags (one rank's word) and marks (as all have them; where they
                           differ, seen and nothing), written by this host's rank 0, for rank 0's daemon alone plans */

  uint32_t joined; /* atomic, ranks: registered ranks; plans apply once it equals nRanks */
  uint32_t veto;   /* atomic, ranks: set before joined counts the rank that sets it */
  uint32_t gin;    /* atomic, ranks, by compare-and-swap: DYN_ALL_*; whoever comes first decides */
  uint32_t answered; /* atomic, daemon: DYN_ANSWERED_*, of which a published plan knows */
  uint64_t proposed; /* atomic, rank 0: version of the newest plan that it has proposed to the ranks of all hosts */
  uint32_t refusal;  /* atomic, rank 0: why the last of them was not taken, DYN_REFUSED_* */
  uint32_t refuser;  /* atomic, rank 0, before refusal: the rank that said so */
  uint64_t reserved0[4];
  uint8_t ginId[128]; /* ncclUniqueId of GIN's own communicator, by rank 0 before it says DYN_GIN_WANTED */

  uint64_t newest; /* atomic, daemon: version << 8 | plan buffer + 1; 0: nothing published */
  uint64_t reserved1[7];

  /* atomic, ranks, by compare-and-swap: last decided epoch << 8 | index (mod 256) of its change log entry */
  uint64_t frontier;
  uint64_t reserved2[7];

  /* atomic, ranks, by compare-and-swap: first epoch << 8 | plan buffer + 1 (0: NCCL's defaults) */
  uint64_t changes[8];

  struct dyn_plan plans[8];
};

/* One collective on one rank. A cell of the ring; cell seq = position + 1 when filled, position + DYN_RING_CELLS free. */
struct dyn_sample {
  uint64_t cell;        /* atomic, producer then consumer */
  uint64_t commId;
  uint64_t seq;         /* getCollInfo call of the communicator that chose it, from 0 */
  uint64_t bytes;       /* as getCollInfo saw them */
  uint64_t startNs;     /* GPU clock (host's when HOST_TIMED) at the first kernel start, or when the stream reached the
                           call (EVENT_TIMED); from any origin that stays; 0: not known */
  uint64_t clockNs;     /* host's CLOCK_MONOTONIC less the GPU clock when an event was told, modulo 2^64: too large by
                           what telling took; 0: not known, or HOST_TIMED */
  uint64_t recvNs;      /* host's CLOCK_MONOTONIC at the end of the last network receive; 0: there was none.
                           EVENT_TIMED: when the call was issued and had returned; 0: not known */
  uint32_t counterNs;   /* local completion; 0: not measured; saturates */
  uint32_t signalNs;    /* remote visibility; saturates; 0 when UNTIMED */
  uint32_t planVersion; /* low 32 bits of the version in force; 0: none */
  uint32_t action;      /* asked for */
  int32_t rank;
  uint8_t collective;   /* ncclFunc_t, DYN_ALL_TO_ALL, or on registered memory */
  uint8_t algorithm;    /* what ran; 255: a name that we do not know */
  uint8_t protocol;     /* what ran; 255: likewise */
  uint8_t channels;     /* that really ran */
  uint16_t flags;       /* DYN_SAMPLE_* */
  uint16_t nRanks;
  uint16_t made;        /* EVENT_TIMED: calls of this collective and bucket so far, captured ones not counted, modulo 2^16 */
  uint8_t entryCall;    /* EVENT_TIMED: of its plan entry, from 1, captured ones not counted; saturates; 0: it has none */
  uint8_t peer;         /* TRIP: rank that answered; else 0 */
};

#define DYN_SAMPLE_AGGREGATED 1 /* several collectives shared one getCollInfo call (ncclGroup): not a cost of the bucket */
#define DYN_SAMPLE_UNJOINED 2   /* no getCollInfo call matched: seq is the profiler's own */
#define DYN_SAMPLE_HOST_TIMED 4 /* timed by the host (profiler v1-v3 give no GPU time) */
#define DYN_SAMPLE_UNTIMED 8    /* no times: says what was asked for and, unless CAPTURED, what ran; with EVENT_TIMED: its host
                                   took too long to enqueue the call (DYN_HOST_LIMIT_NS of preload/probe.h) */
#define DYN_SAMPLE_CAPTURED 16  /* the call went into a CUDA graph, which runs it for ever */
#define DYN_SAMPLE_EVENT_TIMED 32 /* timed by CUDA events around the call: launch included, and the end is the end */
#define DYN_SAMPLE_LSA 64 /* our kernel ran: algorithm is a DYN_KERNEL_*, protocol 0, channels its CTAs */
#define DYN_SAMPLE_REPLAYED 128 /* a CUDA graph ran our kernel again: times are the kernel's own stamps, seq is its number among
                                   the communicator's kernels in graphs (modulo 2^32, the same on all ranks), of which about one in
                                   64 is told; planVersion is 0, and so are the instants. It is no call of the plan */

#define DYN_SAMPLE_GIN 256 /* our kernel ran over GIN: algorithm is a DYN_BACKEND_*, protocol the contexts that it was asked for, channels its CTAs */
#define DYN_SAMPLE_SYMMETRIC 512 /* NCCL's symmetric kernel ran: algorithm is a DYN_SYMMETRIC_*, protocol 0 */
#define DYN_SAMPLE_TRIP 1024 /* beside GIN: one put of it, and no call: counterNs until its source was read (0: no data, a signal
                               alone), signalNs until the peer's answer to its signal was here, bytes of the put, protocol is the
                               context, seq the call's number in its lane (modulo 2^32, the same on all ranks): of graphs where
                               REPLAYED is set too, else of calls. About one call in 256 is told; planVersion and instants are 0 */
#define DYN_SAMPLE_WISHED 2048 /* NCCL was told by name what to run, as a wish that it may decline (in a group) */

/* Samples of one process: bounded multi-producer, single-consumer queue (Vyukov): full means dropped and counted. */
struct dyn_ring {
  struct dyn_header header;
  uint32_t pid;
  uint32_t numCells;
  uint64_t startTime;
  uint64_t reserved0[2];

  uint64_t head; /* atomic, producers: next position to claim */
  uint64_t dropped; /* atomic, producers */
  uint64_t unjoined; /* atomic, producers */
  /* atomic, producers: what the preload library did for NCCL's Socket network in this process (struct dyn_traffic) */
  uint64_t longBytes;
  uint64_t movedBytes;
  uint64_t together;
  uint64_t untold; /* atomic, producers: samples that found no room on their way between hosts (hosts/samples.h) */
  uint64_t reserved1[1];

  uint64_t tail; /* atomic, consumer: next position to read */
  uint64_t reserved2[7];

  /* atomic, daemon: profiler events wanted in this process; ranks stop when heartbeat stands still. ncclProfileKernelCh
   * stands for times, whoever takes them; ncclProfileColl without it: samples are UNTIMED. */
  uint32_t wantMask;
  uint32_t reserved3[15];
};

#endif

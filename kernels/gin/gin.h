/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel on NCCL's GIN is launched with, and where things lie: for the device code and for the host's alike. No type of
 * NCCL's in it.
 *
 * Signals. Each block has one for every peer and kind, so a wait knows whom it waits for, and who does not come can be named.
 * Each is only ever added to (GinSignalAdd), by one, or by several cells at once (pipes.cuh); how far it has come this rank keeps in
 * memory of its own, since a signal goes on counting through calls, and through device communicators. READY says without data that a rank has come so far:
 * that others may put (all_to_all.cuh), or, in answer, that their data has come (trip.cuh).
 *
 * Contexts. Block b of a call has context b % contexts, on all ranks: NCCL orders a signal behind the puts before it on the same
 * context, where it also counts. How many contexts there are is the call's affair: blocks that share one have signals and counters
 * of other numbers there, and a block that had another one in the call before finds each of its signals there at another count
 * (calls.cuh).
 */
#ifndef DYN_GIN_H
#define DYN_GIN_H

#include "../device/call.h"

#define DYN_GIN_MAX_BLOCKS 16 /* that have signals of their own */
#define DYN_GIN_CALLS 24 /* blocks of any kernel, those that share signals among them */
#define DYN_GIN_COUNTERS (DYN_GIN_CALLS + 2) /* as DYN_KERNEL_COUNTERS */
#define DYN_GIN_UNIT 16 /* bytes: blocks' shares begin at multiples of it */
#define DYN_GIN_MAX_CONTEXTS 4 /* NCCL_GIN_MAX_CONTEXTS */
/* Slots of a rank that lie behind each other: 2 halves that peers put into, and 2 that is sent from in rounds. */
#define DYN_GIN_SLOTS 4
/* Name of a kernel that does nothing. It changes with what stands in this file, and has the version of NCCL in it whose
 * structures the kernels know (host/nccl_gin.h), so that a library and kernels of different builds do not meet. */
#define DYN_GIN_LAYOUT(version) DYN_GIN_LAYOUT_JOINED(version)
#define DYN_GIN_LAYOUT_JOINED(version) ginLayout16_##version
#define DYN_GIN_LAYOUT_PREFIX "ginLayout16_"

enum dyn_gin_kind { DYN_GIN_READY, DYN_GIN_DATA, DYN_GIN_KINDS };

/* What was waited for when time was up. */
enum dyn_gin_step { DYN_GIN_NOTHING, DYN_GIN_WAIT_READY, DYN_GIN_WAIT_DATA, DYN_GIN_WAIT_COUNTER, DYN_GIN_WAIT_ROOM, DYN_GIN_STEPS };

/* What is timed of a call (trip.cuh). */
#ifndef DYN_GIN_TRIP_EVERY
#define DYN_GIN_TRIP_EVERY 256 /* calls: an answer takes as long as the put */
#define DYN_GIN_TRIP_CLOSELY 16 /* and where the plan has puts timed closely; a divisor of the former */
/* Calls of which trips are kept: the host looks twice a second, and has to see each twice. Those that are timed closely have places
 * of their own, so that however fast they come they drive out none of the others. */
#define DYN_GIN_TRIPS_RARE 256
#define DYN_GIN_TRIPS_CLOSE 512
#endif
#define DYN_GIN_TRIPS (DYN_GIN_TRIPS_RARE + DYN_GIN_TRIPS_CLOSE)
#define DYN_GIN_UNTIMED UINT32_MAX
#define DYN_GIN_TRIP_BLOCKS DYN_GIN_MAX_CONTEXTS /* of a call the first blocks, as many as it has contexts: each has another one */

/* Of a block and a peer, in memory of the device. 0: it did not come to that. */
struct dyn_gin_legs {
  uint64_t issuedNs, counterNs, signalNs;
};

/* What the host reads of it. */
struct dyn_gin_trip {
  uint64_t word;  /* dyn_gin_trip_word; 0: none */
  uint64_t times; /* dyn_gin_trip_times */
};

struct dyn_gin {
  int32_t rank, nRanks;
  size_t slotBytes; /* of the window of slots: 2 halves of nRanks, and as many to send from */
  uint32_t *calls;  /* [DYN_GIN_COUNTERS], this rank's alone, as in device/domain.cuh; at a multiple of 8 bytes */
  const struct dyn_lanes *lanes; /* of the communicator; NULL: it has no other than this one, or nothing but the probe runs yet */
  uint64_t *seen;   /* [contexts that were granted][dyn_gin_seen], likewise: what signals and counters are known to have reached */
  uint32_t *stop;   /* host memory: not 0: give up, whatever is missing; by the host, or a kernel that has */
  uint64_t *fault;  /* host memory, [nRanks]: of each peer what was waited for in vain: step << 32 | call; 0: nothing */
  uint64_t waitNs;  /* no wait may take longer */
  /* Where this lane's slots, signals and counters begin: calls and CUDA graphs have their own, as in host/lsa.h. */
  size_t slotsAt;
  uint32_t firstSignal, firstCounter;
  struct dyn_gin_legs *legs;  /* [DYN_GIN_TRIP_BLOCKS][nRanks], this rank's alone */
  struct dyn_gin_trip *trips; /* host memory, [DYN_GIN_TRIPS][DYN_GIN_TRIP_BLOCKS][nRanks]; NULL, on all ranks: nothing is timed */
  uint32_t contexts; /* of this call, the same on all ranks, 1 to DYN_GIN_MAX_CONTEXTS; granted are no fewer */
  uint32_t closely;  /* likewise: not 0: timed as one of DYN_GIN_TRIP_CLOSELY calls */
  /* Of hierarchical kernels (pipes.h): ranks of a node, where their buffers begin, room of a cell, a multiple of
   * DYN_GIN_UNIT, and [DYN_GIN_FLAG_WORDS] of this rank's alone: what its flags have reached. */
  int32_t localRanks;
  size_t pipesAt, cellBytes;
  uint32_t *items;
  struct dyn_late *late; /* host memory, of the lane; NULL: nobody is told of waits that last */
  uint64_t lateNs;  /* as dyn_domain.lateNs */
  uint64_t about;   /* what runs, for people: dyn_about; what is waited for comes with it (dyn_about_step) */
  uint32_t *ended;  /* of who carries the puts, who is to know when a kernel is over (carrier/expected.h), DYN_EXPECTED_WORDS; NULL: nobody is told */
};

/* Last argument of the kernels of kernels.cu; the first is NCCL's device communicator. */
struct dyn_gin_call {
  struct dyn_gin gin;
  void *slots; /* ncclWindow_t */
  const void *send;
  void *recv;
  size_t count; /* elements, of ReduceScatter those of a rank's part; of AllToAll and AllGather bytes of a part */
  int32_t op;   /* ncclRedOp_t, of those that add up */
  int32_t same; /* ginMove: all ranks get the same part: AllGather, and not AllToAll */
  struct dyn_gin_stamp *stamps; /* of the probe, and of ginLook, which leaves depths there */
};

/* What a kernel leaves of one put, of a peer's or its own. 0: it did not come to that. */
struct dyn_gin_stamp {
  uint64_t issuedNs;  /* before the put */
  uint64_t postedNs;  /* the put has returned */
  uint64_t counterNs; /* the counter was seen: the source is read */
  uint64_t signalNs;  /* the signal was seen: of the peer's put, or of its answer */
  uint64_t right;     /* the data was there when the signal was */
  uint64_t depth;     /* entries of the queue that it goes into, as ginLook read them; 0: NCCL did not tell */
};

/* Of a lane, on each context. */
DYN_BOTH static inline uint32_t dyn_gin_signals(int nRanks) { return DYN_GIN_KINDS * DYN_GIN_MAX_BLOCKS * (uint32_t)nRanks; }
DYN_BOTH static inline uint32_t dyn_gin_counters(int nRanks) { return DYN_GIN_MAX_BLOCKS * (uint32_t)nRanks; }
DYN_BOTH static inline uint32_t dyn_gin_seen(int nRanks) { return dyn_gin_signals(nRanks) + dyn_gin_counters(nRanks); }

/* Of consecutive numbers of calls about one in so many, as dyn_stamped. */
DYN_BOTH static inline bool dyn_gin_one_in(uint32_t call, uint32_t every) { return call * 2654435769u < UINT32_MAX / every; }
/* The place among DYN_GIN_TRIPS of what a call tells; DYN_GIN_UNTIMED: it is not timed. */
DYN_BOTH static inline uint32_t dyn_gin_trip_place(uint32_t call, bool closely) {
  if (dyn_gin_one_in(call, DYN_GIN_TRIP_EVERY)) return call / DYN_GIN_TRIP_EVERY % DYN_GIN_TRIPS_RARE;
  return closely && dyn_gin_one_in(call, DYN_GIN_TRIP_CLOSELY) ? DYN_GIN_TRIPS_RARE + call / DYN_GIN_TRIP_CLOSELY % DYN_GIN_TRIPS_CLOSE : DYN_GIN_UNTIMED;
}
DYN_BOTH static inline bool dyn_gin_timed(uint32_t call, bool closely) { return dyn_gin_trip_place(call, closely) != DYN_GIN_UNTIMED; }
/* blocks: of the kernel, below 64; contexts that these have, below 8; bytes: put to the peer, below 8 MiB. */
DYN_BOTH static inline uint64_t dyn_gin_trip_word(uint32_t call, unsigned blocks, unsigned contexts, size_t bytes) {
  return (uint64_t)call << 32 | (uint64_t)blocks << 26 | (uint64_t)contexts << 23 | (bytes & 0x7fffff);
}
DYN_BOTH static inline unsigned dyn_gin_trip_blocks(uint64_t word) { return (uint32_t)word >> 26; }
DYN_BOTH static inline unsigned dyn_gin_trip_contexts(uint64_t word) { return (uint32_t)word >> 23 & 7; }
DYN_BOTH static inline uint32_t dyn_gin_trip_bytes(uint64_t word) { return (uint32_t)word & 0x7fffff; }
DYN_BOTH static inline uint32_t dyn_gin_leg_ns(uint64_t from, uint64_t to) { return to <= from ? 0 : to - from < UINT32_MAX ? (uint32_t)(to - from) : UINT32_MAX; }
/* Durations since the put was begun: counter << 32 | signal, there and back. A counter of 0: nothing was put. */
DYN_BOTH static inline uint64_t dyn_gin_trip_times(uint64_t issuedNs, uint64_t counterNs, uint64_t signalNs) {
  return (uint64_t)dyn_gin_leg_ns(issuedNs, counterNs) << 32 | dyn_gin_leg_ns(issuedNs, signalNs);
}

#ifdef __cplusplus
namespace dyn {

using Gin = ::dyn_gin;

DYN_BOTH static inline uint32_t ginSignals(int nRanks) { return dyn_gin_signals(nRanks); }
DYN_BOTH static inline uint32_t ginCounters(int nRanks) { return dyn_gin_counters(nRanks); }
DYN_BOTH static inline uint32_t ginSeen(int nRanks) { return dyn_gin_seen(nRanks); }
/* The signal that peer `from` raises here for this block. */
DYN_BOTH static inline uint32_t ginSignalOf(int nRanks, int kind, unsigned block, int from) {
  return ((uint32_t)kind * DYN_GIN_MAX_BLOCKS + block) * (uint32_t)nRanks + (uint32_t)from;
}
/* The counter of what this block has put to peer `to`. */
DYN_BOTH static inline uint32_t ginCounterOf(int nRanks, unsigned block, int to) { return block * (uint32_t)nRanks + (uint32_t)to; }

/* Signals wrap around, counters at 56 bits (NCCL's gin.h): is value at least that? */
DYN_BOTH static inline bool ginReached(uint64_t value, uint64_t least, int bits) {
  const uint64_t mask = ~0ull >> (64 - bits);
  return ((value - least) & mask) <= mask >> 1;
}

/* Bytes [begin, end) of so many are this block's. */
struct GinShare {
  size_t begin, end;
};
DYN_BOTH static inline GinShare ginShareOf(size_t bytes, unsigned blocks, unsigned block) {
  const size_t units = dyn_packs(bytes, DYN_GIN_UNIT), each = (units + blocks - 1) / blocks * DYN_GIN_UNIT;
  const size_t begin = block * each < bytes ? block * each : bytes;
  return {begin, bytes - begin < each ? bytes : begin + each};
}

/* Through slots in rounds: in each every block moves so many bytes of every part, all blocks alike, so that what it
 * moves in one round lies where it did in the one before: blocks of a kernel do not wait for each other. */
struct GinRounds {
  size_t each;
  unsigned blocks;
  uint32_t count;
};
DYN_BOTH static inline GinRounds ginRoundsOf(size_t part, size_t slotBytes, unsigned blocks) {
  const size_t most = slotBytes / DYN_GIN_UNIT / blocks, units = dyn_packs(part, DYN_GIN_UNIT), even = (units + blocks - 1) / blocks;
  const size_t each = even < most ? even : most;
  return {each * DYN_GIN_UNIT, blocks, (uint32_t)((units + each * blocks - 1) / (each * blocks))};
}
/* Bytes of a part. Of the last round there may be none. */
DYN_BOTH static inline GinShare ginRoundShare(const GinRounds &r, size_t part, uint32_t round, unsigned block) {
  const size_t begin = ((size_t)round * r.blocks + block) * r.each;
  return {begin < part ? begin : part, begin + r.each < part ? begin + r.each : part};
}

/* What a probe sends: its own for each sender, block and call. Not 0, which is what fresh memory holds. */
DYN_BOTH static inline uint64_t ginProbeWord(int from, unsigned block, uint32_t call) {
  return (uint64_t)call << 32 | 0xd1u << 16 | (uint32_t)from << 8 | block;
}

}  // namespace dyn
#endif

#endif

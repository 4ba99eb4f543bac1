/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel asks of a GPU; ../test/nic_machine.h has the same for threads of a CPU. What another block, the host or a
 * peer writes is loaded past the first-level cache.
 */
#ifndef DYN_NIC_MACHINE_CUH
#define DYN_NIC_MACHINE_CUH

#include "gdaki_abi.h"
#include "nic.h"
#include "nic_stamps.cuh"

namespace dyn {

constexpr unsigned kNicLanes = 32, kNicFirstCopier = NIC_SIDES * kNicLanes, kNicCopiers = NIC_THREADS - kNicFirstCopier, kEverybody = 0xffffffffu;

__device__ __forceinline__ unsigned nicLane() { return threadIdx.x % kNicLanes; }
__device__ __forceinline__ void joinWarp() { __syncwarp(); }
__device__ __forceinline__ int lowestBit(uint32_t bits) { return __ffs((int)bits) - 1; }
__device__ __forceinline__ int highestBit(uint32_t bits) { return 31 - __clz((int)bits); }

__device__ __forceinline__ uint32_t swapBytes(uint32_t word) { return __byte_perm(word, 0, 0x0123); }

__device__ __forceinline__ uint64_t nicNowNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__device__ __forceinline__ uint32_t loadCount(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void storeCount(uint32_t *at, uint32_t value) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory"); }

/* Words of host memory. */
__device__ __forceinline__ uint32_t loadHost(const uint32_t *at) { return *(const volatile uint32_t *)at; }
__device__ __forceinline__ void storeHost(uint32_t *at, uint32_t value) { *(volatile uint32_t *)at = value; }
/* By any warp, of one kernel after the other's. */
__device__ __forceinline__ uint64_t loadNs(const uint64_t *at) { return *(const volatile uint64_t *)at; }
__device__ __forceinline__ void storeNs(uint64_t *at, uint64_t ns) {
  if (nicLane() == 0) *(volatile uint64_t *)at = ns;
}
__device__ __forceinline__ void tellUsed(nic_report *report, uint32_t number) {
  if (nicLane() == 0) storeHost(&report->used, number);
}
__device__ __forceinline__ uint64_t loadRung(const nic_posted &posted) { return *(const volatile uint64_t *)posted.rung; }
__device__ __forceinline__ bool anyLane(bool is) { return __any_sync(kEverybody, is) != 0; }
/* What it looks at is other kernels' memory, too, whom it should not slow down. */
__device__ __forceinline__ void nicNap() { __nanosleep(200); }

/* Of a queue that nothing is asked of, the looks from one question whether the launch may end to the next, 0.1 ms: that is a read of host
 * memory, for which the fences of other queues' warps wait. Asked at each look, it cost what goes there and back 3 us. */
constexpr uint32_t kAskLooks = 256;

/* A request and the one behind it, in shared memory: shuffles of every word take longer, each with a look for lanes that are apart. */
struct NicRequests {
  const uint32_t *words;
  __device__ __forceinline__ uint32_t word(int which, int i) const { return words[which * GDAKI_WORDS + i]; }
};

/* On their way there: a lane has a word of both. Where it lies is reckoned before it is known that something is there. */
struct NicSlots {
  const uint32_t *at;
  uint32_t own;
  __device__ __forceinline__ NicSlots(const uint8_t *queue, uint32_t index) : own(0) {
    at = (const uint32_t *)(queue + (index + nicLane() / GDAKI_WORDS) % NIC_DEPTH * NIC_REQUEST_BYTES) + nicLane() % GDAKI_WORDS;
  }
  __device__ __forceinline__ void load() { own = *(const volatile uint32_t *)at; }
};

/* A word that another block or a poster writes, the host where it feeds the card, and what that one saw before. */
template <bool kFed = false>
__device__ __forceinline__ uint64_t lookAt(const uint64_t *at) {
  uint64_t now;
  if (kFed) asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(now) : "l"(at) : "memory");
  else asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(at) : "memory");
  return now;
}

/* Controls, a count of requests and what the launch has in common, in one load of 64 bits a lane. What is as it was costs no more. */
struct NicView {
  uint32_t control[NIC_CONTROLS];
  uint64_t rung;
  uint32_t helpers;
  bool over;
  const uint64_t *at;
  uint64_t own;
  __device__ __forceinline__ NicView(const uint32_t *controls, const uint64_t *ready, const uint32_t *launch) : control(), rung(0), helpers(0), over(false), own(0) {
    const unsigned lane = nicLane(), pairs = NIC_CONTROLS / 2;
    at = lane < pairs ? (const uint64_t *)controls + lane : lane < pairs + NIC_LAUNCHES / 2 ? (const uint64_t *)launch + (lane - pairs) : ready;
  }
  template <bool kFed>
  __device__ __forceinline__ void look() {
    const uint64_t now = lookAt<kFed>(at);
    const unsigned changes = __ballot_sync(kEverybody, now != own), ready = NIC_CONTROLS / 2 + NIC_LAUNCHES / 2;
    own = now;
    if (changes >> ready != 0) rung = __shfl_sync(kEverybody, own, ready);
    if ((changes & ((1u << ready) - 1)) == 0) return;
#pragma unroll
    for (int i = 0; i < NIC_CONTROLS; i++) control[i] = (uint32_t)(__shfl_sync(kEverybody, own, i / 2) >> (i % 2 * 32));
    helpers = (uint32_t)(__shfl_sync(kEverybody, own, NIC_CONTROLS / 2 + NIC_HELPERS / 2) >> (NIC_HELPERS % 2 * 32));
    over = (uint32_t)(__shfl_sync(kEverybody, own, NIC_CONTROLS / 2 + NIC_OVER / 2) >> (NIC_OVER % 2 * 32)) != 0;
  }
};

__device__ __forceinline__ nic_part loadPart(const nic_part *at) {
  nic_part part;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(part.at), "=l"(part.bytes) : "l"(at) : "memory");
  return part;
}

template <typename T>
__device__ __forceinline__ T loadSource(const T *at) { return __ldcg(at); }

/* By so many threads, of which this is one. Each has all of kDeep loads under way before it stores the first, also at the end:
 * one round of loads, which is what a copy of up to kDeep * kBy units takes, is as long as one load. */
template <typename T, int kDeep, unsigned kBy>
__device__ __forceinline__ void copyAs(char *to, const char *from, uint32_t count, unsigned thread) {
  for (uint32_t i = thread; i < count; i += kDeep * kBy) {
    const T *in = (const T *)from + i;
    T *out = (T *)to + i, some[kDeep];
#pragma unroll
    for (unsigned k = 0; k < kDeep; k++)
      if (k == 0 || i + k * kBy < count) some[k] = loadSource(in + k * kBy);
#pragma unroll
    for (unsigned k = 0; k < kDeep; k++)
      if (k == 0 || i + k * kBy < count) out[k * kBy] = some[k];
  }
}
/* Whole units of so many bits, and the bytes before and behind them. */
template <typename T, int kBits, int kDeep, unsigned kBy>
__device__ __forceinline__ void copyUnits(char *to, const char *from, uint32_t bytes, unsigned thread) {
  const uint32_t unit = 1u << kBits, up = -(uint32_t)(uintptr_t)to & (unit - 1), before = up < bytes ? up : bytes, whole = (bytes - before) >> kBits, done = before + (whole << kBits);
  if (thread < before) to[thread] = loadSource(from + thread);
  copyAs<T, kDeep, kBy>(to + before, from + before, whole, thread);
  if (thread < bytes - done) to[done + thread] = loadSource(from + done + thread);
}
/* Bytes that begin at other remainders of 16 go as words or one by one. What is small goes as it is, 8 bytes a thread: the
 * fence behind 8 single bytes took 1,690 clocks, that behind more of whole words 1,220. */
template <unsigned kBy>
__device__ __forceinline__ void copyBytes(char *to, const char *from, uint32_t bytes, unsigned thread) {
  __builtin_assume(__isGlobal(to)); /* so no store has to find out */
  if (bytes <= sizeof(uint64_t) * kNicLanes && ((uint32_t)(uintptr_t)to | (uint32_t)(uintptr_t)from | bytes) % sizeof(uint64_t) == 0) {
    if (thread < bytes / sizeof(uint64_t)) ((uint64_t *)to)[thread] = loadSource((const uint64_t *)from + thread);
    return;
  }
  const uint32_t apart = (uint32_t)(uintptr_t)to ^ (uint32_t)(uintptr_t)from;
  if (apart % 16 == 0) copyUnits<uint4, 4, NIC_DEEP, kBy>(to, from, bytes, thread);
  else if (apart % 4 == 0) copyUnits<uint32_t, 2, 8, kBy>(to, from, bytes, thread);
  else copyAs<char, 8, kBy>(to, from, bytes, thread);
}
__device__ __forceinline__ void copyByWarp(char *to, const char *from, uint32_t bytes) { copyBytes<kNicLanes>(to, from, bytes, nicLane()); }

/* Behind joinWarp: what all lanes wrote, and saw, is there for who sees the sum. As a fence, which also stands before jobs. */
__device__ __forceinline__ void addReleased(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("fence.acq_rel.sys;\n\tred.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/* What posters know of it: those who find room in their queue so need not look at completions. */
__device__ __forceinline__ void raiseKnown(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/* What a get brought into this rank's memory is there for who sees its completion, on this GPU. By all lanes. */
__device__ __forceinline__ void releaseGot() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  __syncwarp();
}
/* What all lanes wrote is there for the host, and for who hears of it from the host, when that sees a completion. */
__device__ __forceinline__ void releaseAll() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  __syncwarp();
}
/* No release: what stands for the source alone waits for no peer. */
__device__ __forceinline__ void addPlain(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ void storeCompletion(uint8_t *completions, uint32_t index, uint32_t word) {
  if (nicLane() == 0) *(volatile uint32_t *)(completions + (size_t)index * NIC_COMPLETION_BYTES + NIC_COMPLETION_BYTES - 4) = word;
}

__device__ __forceinline__ uint64_t passLink(uint64_t *freeNs, uint64_t now, uint64_t ns) {
  unsigned long long until = 0;
  if (nicLane() == 0) {
    auto *at = (unsigned long long *)freeNs;
    for (unsigned long long seen = *(volatile unsigned long long *)at, before;; seen = before) {
      until = (seen > now ? seen : now) + ns;
      if ((before = atomicCAS(at, seen, until)) == seen) break;
    }
  }
  return __shfl_sync(kEverybody, until, 0);
}

__device__ __forceinline__ uint32_t lastJob(const nic_job *job) { return (uint32_t)(lookAt(&job->words[NIC_JOB_NEXT]) >> 32); }
/* Behind a fence, or at the kernel's end. */
__device__ __forceinline__ void storeNext(nic_job *job, uint32_t number, uint32_t blocks) {
  if (nicLane() == 0) asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&job->words[NIC_JOB_NEXT]), "l"((uint64_t)number << 32 | blocks) : "memory");
}
/* Of a block's only poster. ordered: behind all that was written so far. */
__device__ __forceinline__ void postJob(nic_job *job, uint32_t number, uint64_t to, uint64_t from, uint32_t bytes, uint32_t blocks, bool ordered) {
  if (nicLane() != 0) return;
  const uint64_t high = (uint64_t)number << 32;
  const uint64_t words[NIC_JOB_WORDS] = {high | (uint32_t)to, high | to >> 32, high | (uint32_t)from, high | from >> 32, high | bytes, high | blocks};
  if (ordered) asm volatile("fence.acq_rel.gpu;" ::: "memory");
#pragma unroll
  for (int i = 0; i < NIC_JOB_WORDS; i += 2)
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(&job->words[i]), "l"(words[i]), "l"(words[i + 1]) : "memory");
}
/* Lane h waits for helper h. */
__device__ __forceinline__ bool allCopied(const uint32_t *copied, uint32_t helpers, uint32_t number) {
  const bool all = __all_sync(kEverybody, nicLane() >= helpers || loadCount(&copied[nicLane()]) == number);
  __syncwarp();
  return all;
}
/* By a block's first warp, behind what its threads copied. */
__device__ __forceinline__ void storeCopied(uint32_t *at, uint32_t number) {
  if (nicLane() == 0) storeCount(at, number);
}
__device__ __forceinline__ uint32_t joinHelpers(uint32_t *helpers) {
  uint32_t own = 0;
  if (nicLane() == 0) own = atomicAdd(helpers, 1);
  return __shfl_sync(kEverybody, own, 0);
}

__device__ __forceinline__ uint64_t loadConsumed(const uint64_t *at) { return *(const volatile uint64_t *)at; }
__device__ __forceinline__ void storeConsumed(uint64_t *at, uint64_t *report, uint64_t value, uint64_t failed) {
  if (nicLane() == 0) *(volatile uint64_t *)at = value | failed << NIC_CONSUMED_BITS, *(volatile uint64_t *)report = value;
}
__device__ __forceinline__ void reportFailure(nic_report *report, uint32_t failed, uint32_t peer) {
  if (nicLane() != 0 || *(volatile uint32_t *)&report->failed != 0) return;
  *(volatile uint32_t *)&report->peer = peer;
  __threadfence_system();
  *(volatile uint32_t *)&report->failed = failed;
}
__device__ __forceinline__ void countUp(uint32_t *at) {
  __threadfence_system();
  __syncwarp();
  if (nicLane() == 0) atomicAdd(at, 1);
}

/* This queue, a bit, is idle, or not any more. */
__device__ __forceinline__ void noteIdle(uint32_t *launch, uint32_t bit, uint32_t all, bool is) {
  if (nicLane() != 0) return;
  if (!is) atomicAnd(&launch[NIC_IDLE], ~bit);
  else if ((atomicOr(&launch[NIC_IDLE], bit) | bit) == all) storeCount(&launch[NIC_OVER], 1);
}

/* Of a block, in shared memory. Of a peer's the first warp serves the main queue, the second the side queue; of a helper's the
 * first looks for jobs. The others wait, in a barrier with the first, for what there is to copy; it copies none of that itself. */
struct NicBlock {
  alignas(16) uint32_t requests[NIC_SIDES][kNicLanes]; /* of a helper: the job */
  uint32_t consumed;
  bool ends;
  char *to;
  const char *from;
  uint32_t bytes;
#ifdef NIC_STAMPS
  NicStamps stamps;
#endif
  __device__ __forceinline__ uint32_t mainConsumed() const { return *(const volatile uint32_t *)&consumed; }
  __device__ __forceinline__ void setMainConsumed(uint32_t value) {
    if (nicLane() == 0) *(volatile uint32_t *)&consumed = value;
  }
  __device__ __forceinline__ NicRequests share(int side, const NicSlots &slots) {
    __syncwarp(); /* nobody reads what was loaded before */
    requests[side][nicLane()] = slots.own;
    __syncwarp();
    return {requests[side]};
  }
  /* One request, and a word that is looked at behind its being ready. */
  __device__ __forceinline__ NicRequests loadRequest(const uint8_t *queue, uint32_t index, const uint32_t *beside, uint32_t *now) {
    const uint32_t *at = nicLane() < GDAKI_WORDS ? (const uint32_t *)(queue + index * NIC_REQUEST_BYTES) + nicLane() : beside;
    const uint32_t own = *(const volatile uint32_t *)at;
    __syncwarp();
    requests[0][nicLane()] = own;
    __syncwarp();
    *now = requests[0][GDAKI_WORDS];
    return {requests[0]};
  }
  static __device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(kNicCopiers + kNicLanes) : "memory"); }
  /* By the first warp, which has its time for something else until it ends the copy. Behind that what all copied is there for
   * whom this warp tells. */
  __device__ __forceinline__ void beginCopy(char *to_, const char *from_, uint32_t bytes_) {
    if (nicLane() == 0) to = to_, from = from_, bytes = bytes_;
    meet();
  }
  static __device__ __forceinline__ void endCopy() { meet(); }
  __device__ __forceinline__ void endCopies() {
    if (nicLane() == 0) ends = true;
    meet();
  }
  /* By the others. */
  __device__ __forceinline__ void serveCopies() {
    while (meet(), !ends) {
      copyBytes<kNicCopiers>(to, from, bytes, threadIdx.x - kNicFirstCopier);
      meet();
    }
  }
};

struct NicJob {
  uint32_t number, bytes, blocks, helpers;
  uint64_t to, from;
  /* Which of those that answer this block is; as many as there are: none. */
  __device__ __forceinline__ uint32_t placeOf(uint32_t own) const {
    const uint32_t first = blocks >> 16 & 0xff, there = blocks >> 24, all = number & NIC_JOB_HELPERS;
    return own >= there ? all : own >= first ? own - first : own + there - first;
  }
};

/* What a helper looks at, in one load: 8 lanes have a job's words, what it may begin with unasked, and the count of what is ready
 * in its queue. For more than 4 peers in two. Fed by the host that count is host memory's, for whose reads the fences of all kernels on the GPU
 * wait: then nothing is begun with unasked, and what the queue's warp acquired it releases with each job. */
template <bool kFed>
struct NicBoard {
  static constexpr int kGroup = 8, kLoads = NIC_MAX_RANKS * kGroup / (int)kNicLanes, kReady = NIC_JOB_NEXT + 1, kEndLooks = 16;
  const uint64_t *at[kLoads];
  uint64_t now[kLoads];
  uint32_t done[kLoads], nextDone[kLoads];
  bool both;
  int looks;
  __device__ __forceinline__ explicit NicBoard(const nic &n) : now(), done(), nextDone(), both(n.nRanks > (int)kNicLanes / kGroup), looks(0) {
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      const int peer = (int)nicLane() / kGroup + k * (int)kNicLanes / kGroup, p = peer < n.nRanks ? peer : 0, word = (int)nicLane() % kGroup;
      at[k] = kFed || word < kReady ? &n.jobs[p].words[word] : n.posted[p * NIC_SIDES].rung;
    }
    peers = (1u << n.nRanks) - 1;
  }
  __device__ __forceinline__ void look() {
    now[0] = lookAt(at[0]);
    if (both) now[1] = lookAt(at[1]);
  }
  /* Now and then it is looked at, for it takes as long as a look. */
  __device__ __forceinline__ bool haveEnded(const nic &n) { return ++looks % kEndLooks == 0 && loadCount(&n.launch[NIC_ENDED]) == (uint32_t)(n.nRanks * NIC_SIDES); }
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      done[k] = __shfl_sync(kEverybody, (uint32_t)(now[k] >> 32), 0, kGroup);
      nextDone[k] = __shfl_sync(kEverybody, (uint32_t)(now[k] >> 32), NIC_JOB_NEXT, kGroup);
    }
  }
  /* Where all lanes of a group say so, the peer's bit. */
  static __device__ __forceinline__ uint32_t groupsOf(bool fine, int k) {
    uint32_t all = __ballot_sync(kEverybody, fine);
    all &= all >> 4, all &= all >> 2, all = all & all >> 1 & 0x01010101u;  /* of each group's lanes, the lowest bit */
    return all * 0x01020408u >> 24 << k * (int)kNicLanes / kGroup;         /* and these side by side; none adds up to another */
  }
  /* Peers, a bit each, of whose jobs there is a new one with a part for this block; and those, NIC_MAX_RANKS bits further, of whom
   * a request is ready that this block is to look at unasked. */
  __device__ __forceinline__ uint32_t jobsOf(uint32_t own) const {
    const int word = (int)nicLane() % kGroup;
    uint32_t some = 0, next = 0;
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      if (k > 0 && !both) break;
      const uint32_t high = (uint32_t)(now[k] >> 32), number = __shfl_sync(kEverybody, high, 0, kGroup), nextNumber = __shfl_sync(kEverybody, high, NIC_JOB_NEXT, kGroup);
      if (__ballot_sync(kEverybody, number != done[k] || nextNumber != nextDone[k]) == 0) continue;
      const auto isReady = [&](uint32_t blocks) { return kFed || word != kReady || (int16_t)((uint16_t)now[k] - (uint16_t)blocks) >= 0; };
      const uint32_t blocks = __shfl_sync(kEverybody, (uint32_t)now[k], NIC_JOB_BLOCKS, kGroup), nextBlocks = __shfl_sync(kEverybody, (uint32_t)now[k], NIC_JOB_NEXT, kGroup);
      const NicJob job = {number, 0, blocks}, begins = {nextNumber, 0, nextBlocks};
      next |= groupsOf(isReady(nextBlocks) && nextNumber != nextDone[k] && begins.placeOf(own) < (nextNumber & NIC_JOB_HELPERS), k);
      some |= groupsOf((word >= NIC_JOB_WORDS || high == number) && isReady(blocks) && number != done[k] && job.placeOf(own) < (number & NIC_JOB_HELPERS), k);
    }
    return (some & peers) | (next & peers) << NIC_MAX_RANKS;
  }
  __device__ __forceinline__ NicJob take(NicBlock &block, int peer, bool next) {
    const int group = peer % ((int)kNicLanes / kGroup);
    const bool is = (int)nicLane() / kGroup == group, second = peer >= (int)kNicLanes / kGroup;
    const uint64_t own = second ? now[1] : now[0];
    uint32_t *const low = block.requests[0], *const high = block.requests[1];
    __syncwarp(); /* nobody reads the job before */
    if (is) low[nicLane() % kGroup] = (uint32_t)own, high[nicLane() % kGroup] = (uint32_t)(own >> 32);
    __syncwarp();
    const auto address = [&](int i) { return (uint64_t)low[i + 1] << 32 | low[i]; };
    const int word = next ? NIC_JOB_NEXT : 0;
    const NicJob job = {high[word], low[NIC_JOB_BYTES], low[next ? NIC_JOB_NEXT : NIC_JOB_BLOCKS], high[word] & NIC_JOB_HELPERS, address(NIC_JOB_TO), address(NIC_JOB_FROM)};
    if (is && next) (second ? nextDone[1] : nextDone[0]) = job.number;
    else if (is) (second ? done[1] : done[0]) = job.number;
    return job;
  }
  uint32_t peers;
};

}  // namespace dyn

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel asks of a GPU; ../test/nic_machine.h has the same for threads of a CPU. What another block, the host or a
 * peer writes is loaded past the first-level cache.
 */
#ifndef DYN_NIC_MACHINE_CUH
#define DYN_NIC_MACHINE_CUH

#include "gdaki_abi.h"
#include "nic.h"

namespace dyn {

constexpr unsigned kNicLanes = 32, kEverybody = 0xffffffffu;

__device__ __forceinline__ unsigned nicLane() { return threadIdx.x % kNicLanes; }
__device__ __forceinline__ unsigned nicThread() { return threadIdx.x; }
__device__ __forceinline__ unsigned nicThreads() { return blockDim.x; }
__device__ __forceinline__ void joinWarp() { __syncwarp(); }

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

/* A request and the one behind it, a word a lane. */
struct NicRequests {
  uint32_t own;
  __device__ __forceinline__ uint32_t word(int which, int i) const { return __shfl_sync(kEverybody, own, which * GDAKI_WORDS + i); }
};
__device__ __forceinline__ NicRequests loadRequests(const uint8_t *queue, uint32_t index) {
  const unsigned which = nicLane() / GDAKI_WORDS, word = nicLane() % GDAKI_WORDS;
  return {*(const volatile uint32_t *)(queue + (index + which) % NIC_DEPTH * NIC_REQUEST_BYTES + word * 4)};
}

/* Controls, a doorbell and what the launch has in common, in one load of 64 bits a lane. What is as it was costs no more. */
struct NicView {
  uint32_t control[NIC_CONTROLS];
  uint64_t rung;
  bool over;
  const uint64_t *at;
  uint64_t own;
  __device__ __forceinline__ NicView(const uint32_t *controls, const uint64_t *doorbell, const uint32_t *launch) : control(), rung(0), over(false), own(0) {
    const unsigned lane = nicLane(), pairs = NIC_CONTROLS / 2;
    at = lane < pairs ? (const uint64_t *)controls + lane : lane < pairs + NIC_LAUNCHES / 2 ? (const uint64_t *)launch + (lane - pairs) : doorbell;
  }
  __device__ __forceinline__ void look() {
    uint64_t now;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(at) : "memory");
    const unsigned changes = __ballot_sync(kEverybody, now != own), doorbell = NIC_CONTROLS / 2 + NIC_LAUNCHES / 2;
    own = now;
    if (changes >> doorbell != 0) rung = __shfl_sync(kEverybody, own, doorbell);
    if ((changes & ((1u << doorbell) - 1)) == 0) return;
#pragma unroll
    for (int i = 0; i < NIC_CONTROLS; i++) control[i] = (uint32_t)(__shfl_sync(kEverybody, own, i / 2) >> (i % 2 * 32));
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

/* By so many threads, of which this is one. Bytes that begin at other remainders of 16 go as words or one by one. */
template <typename T, int kDeep>
__device__ __forceinline__ void copyAs(char *to, const char *from, uint64_t count, unsigned lane, unsigned lanes) {
  uint64_t i = lane;
  for (; i + (kDeep - 1) * (uint64_t)lanes < count; i += kDeep * (uint64_t)lanes) {
    T some[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; k++) some[k] = loadSource((const T *)from + i + k * (uint64_t)lanes);
#pragma unroll
    for (int k = 0; k < kDeep; k++) ((T *)to)[i + k * (uint64_t)lanes] = some[k];
  }
  for (; i < count; i += lanes) ((T *)to)[i] = loadSource((const T *)from + i);
}
/* Whole units of so many bits, and the bytes before and behind them. */
template <typename T, int kBits>
__device__ __forceinline__ void copyUnits(char *to, const char *from, uint64_t bytes, unsigned lane, unsigned lanes) {
  const uint64_t unit = 1u << kBits, up = -(uint64_t)to & (unit - 1), before = up < bytes ? up : bytes, whole = (bytes - before) >> kBits, done = before + (whole << kBits);
  if (lane < before) to[lane] = loadSource(from + lane);
  copyAs<T, 8>(to + before, from + before, whole, lane, lanes);
  if (lane < bytes - done) to[done + lane] = loadSource(from + done + lane);
}
__device__ __forceinline__ void copyBytes(char *to, const char *from, uint64_t bytes, unsigned lane, unsigned lanes) {
  const uint64_t apart = (uint64_t)to ^ (uint64_t)from;
  if (apart % 16 == 0) copyUnits<uint4, 4>(to, from, bytes, lane, lanes);
  else if (apart % 4 == 0) copyUnits<uint32_t, 2>(to, from, bytes, lane, lanes);
  else copyAs<char, 8>(to, from, bytes, lane, lanes);
}

/* Behind joinWarp: what all lanes wrote, and saw, is there for who sees the sum. */
__device__ __forceinline__ void addReleased(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/* What posters know of it: those who find room in their queue so need not look at completions. */
__device__ __forceinline__ void raiseKnown(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
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

/* Of a block's only poster. */
__device__ __forceinline__ uint32_t postJob(nic_job *job, uint64_t to, uint64_t from, uint64_t bytes, uint64_t each, uint32_t helpers) {
  const uint32_t number = ((*(volatile uint32_t *)&job->number | NIC_JOB_HELPERS) + 1) | helpers;
  __syncwarp();
  if (nicLane() == 0) {
    volatile nic_job *at = job;
    at->to = to, at->from = from, at->bytes = bytes, at->each = each;
    storeCount(&job->number, number);
  }
  return number;
}
__device__ __forceinline__ nic_job loadJob(const nic_job *job) {
  const volatile nic_job *at = job;
  nic_job j;
  j.to = at->to, j.from = at->from, j.bytes = at->bytes, j.each = at->each;
  return j;
}
__device__ __forceinline__ bool allCopied(const uint32_t *copied, uint32_t helpers, uint32_t number) {
  return __all_sync(kEverybody, nicLane() >= helpers || loadCount(&copied[nicLane()]) == number);
}
/* By a block; behind it what its threads copied is there for who sees the number, and for whom that one tells. */
__device__ __forceinline__ void storeCopied(uint32_t *at, uint32_t number) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  *(volatile uint32_t *)at = number;
}
__device__ __forceinline__ void restHelper() { __nanosleep(50); }

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

/* Of a peer's block, in shared memory. Its first warp serves the main queue, the second the side queue; the others wait, in a
 * barrier of the first's, for what there is to copy. */
struct NicBlock {
  uint32_t consumed;
  bool ends;
  char *to;
  const char *from;
  uint64_t bytes;
  __device__ __forceinline__ uint32_t mainConsumed() const { return *(const volatile uint32_t *)&consumed; }
  __device__ __forceinline__ void setMainConsumed(uint32_t value) {
    if (nicLane() == 0) *(volatile uint32_t *)&consumed = value;
  }
  static __device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x - kNicLanes) : "memory"); }
  /* By the first warp. Behind it what all copied is there for whom this warp tells. */
  __device__ __forceinline__ void copy(char *to_, const char *from_, uint64_t bytes_) {
    if (nicLane() == 0) to = to_, from = from_, bytes = bytes_;
    meet();
    copyBytes(to_, from_, bytes_, nicLane(), blockDim.x - kNicLanes);
    meet();
  }
  __device__ __forceinline__ void endCopies() {
    if (nicLane() == 0) ends = true;
    meet();
  }
  /* By the others. */
  __device__ __forceinline__ void serveCopies() {
    while (meet(), !ends) {
      copyBytes(to, from, bytes, threadIdx.x - kNicLanes, blockDim.x - kNicLanes);
      meet();
    }
  }
};

/* Of a helper's block, in shared memory: numbers of jobs, those that were done, and how many warps have ended. */
struct NicBoard {
  uint32_t now[NIC_MAX_RANKS + 1], seen[NIC_MAX_RANKS], own;
  __device__ __forceinline__ void look(const nic &n) {
    __syncthreads();
    if ((int)threadIdx.x <= n.nRanks) now[threadIdx.x] = (int)threadIdx.x < n.nRanks ? loadCount(&n.jobs[threadIdx.x].number) : loadCount(&n.launch[NIC_ENDED]);
    __syncthreads();
    nRanks = n.nRanks;
  }
  __device__ __forceinline__ bool isNew(int peer) const { return now[peer] != seen[peer]; }
  __device__ __forceinline__ uint32_t number(int peer) const { return now[peer]; }
  __device__ __forceinline__ uint32_t ended() const { return now[nRanks]; }
  __device__ __forceinline__ void keep(const nic &n) {
    __syncthreads();
    if ((int)threadIdx.x < n.nRanks) seen[threadIdx.x] = now[threadIdx.x];
    __syncthreads();
  }
  __device__ __forceinline__ uint32_t join(uint32_t *helpers) {
    if (threadIdx.x == 0) own = atomicAdd(helpers, 1);
    __syncthreads();
    return own;
  }
  int nRanks;
};

}  // namespace dyn

#endif

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

/* Controls and doorbells in one look. */
struct NicLook {
  uint32_t own;
  __device__ __forceinline__ uint32_t control(int i) const { return __shfl_sync(kEverybody, own, i); }
  __device__ __forceinline__ uint64_t doorbell(int side) const { return __shfl_sync(kEverybody, own, NIC_CONTROLS + side); }
};
__device__ __forceinline__ NicLook nicLook(const uint32_t *control, const uint64_t *doorbells) {
  const unsigned lane = nicLane();
  const uint32_t *at = lane < NIC_CONTROLS ? control + lane : (const uint32_t *)(doorbells + (lane - NIC_CONTROLS) % NIC_SIDES);
  const NicLook look = {loadCount(at)};
  __syncwarp();
  return look;
}

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
__device__ __forceinline__ void copyBytes(char *to, const char *from, uint64_t bytes, unsigned lane, unsigned lanes) {
  const uint64_t apart = (uint64_t)to ^ (uint64_t)from, unit = apart % 16 == 0 ? 16 : apart % 4 == 0 ? 4 : 1;
  uint64_t before = (unit - (uint64_t)to % unit) % unit;
  if (before > bytes) before = bytes;
  const uint64_t whole = (bytes - before) / unit, done = before + whole * unit;
  copyAs<unsigned char, 1>(to, from, before, lane, lanes);
  if (unit == 16) copyAs<uint4, 8>(to + before, from + before, whole, lane, lanes);
  else if (unit == 4) copyAs<uint32_t, 8>(to + before, from + before, whole, lane, lanes);
  else copyAs<unsigned char, 8>(to + before, from + before, whole, lane, lanes);
  copyAs<unsigned char, 1>(to + done, from + done, bytes - done, lane, lanes);
}

/* Behind joinWarp: what all lanes wrote, and saw, is there for who sees the sum. */
__device__ __forceinline__ void addReleased(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/* No release: what stands for the source alone waits for no peer. */
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
__device__ __forceinline__ uint32_t postJob(nic_job *job, uint64_t to, uint64_t from, uint64_t bytes, uint32_t parts) {
  const uint32_t number = *(volatile uint32_t *)&job->number + 1;
  __syncwarp();
  if (nicLane() == 0) {
    volatile nic_job *at = job;
    at->to = to, at->from = from, at->bytes = bytes, at->parts = parts;
    storeCount(&job->number, number);
  }
  return number;
}
__device__ __forceinline__ nic_job loadJob(const nic_job *job) {
  const volatile nic_job *at = job;
  nic_job j;
  j.to = at->to, j.from = at->from, j.bytes = at->bytes, j.parts = at->parts, j.number = at->number;
  return j;
}
__device__ __forceinline__ bool allCopied(const uint32_t *copied, uint32_t parts, uint32_t number) {
  return __all_sync(kEverybody, nicLane() >= parts || loadCount(&copied[nicLane()]) == number);
}
/* By a block; behind it what its threads copied is there for who sees the number, and for whom that one tells. */
__device__ __forceinline__ void storeCopied(uint32_t *at, uint32_t number) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  storeCount(at, number);
}
__device__ __forceinline__ void restHelper() { __nanosleep(50); }

__device__ __forceinline__ uint64_t loadConsumed(const uint64_t *at) { return *(const volatile uint64_t *)at; }
__device__ __forceinline__ void storeConsumed(uint64_t *at, uint64_t value) {
  if (nicLane() == 0) *(volatile uint64_t *)at = value;
}
__device__ __forceinline__ void storeReport(uint32_t *at, uint32_t value) {
  if (nicLane() == 0) *(volatile uint32_t *)at = value;
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

/* Of the first block: when all its warps have had nothing to do for long. In shared memory, zeros at first. */
struct NicIdle {
  uint32_t *idle, *isOver;
  bool was;
  __device__ __forceinline__ bool over() const { return *(volatile uint32_t *)isOver != 0; }
  __device__ __forceinline__ void note(int peer, int nRanks, bool is) {
    if (is == was) return;
    was = is;
    if (nicLane() != 0) return;
    const uint32_t bit = 1u << peer;
    if (!is) atomicAnd(idle, ~bit);
    else if ((atomicOr(idle, bit) | bit) == (1u << nRanks) - 1) *(volatile uint32_t *)isOver = 1;
  }
};

/* Of a helper's block, in shared memory: numbers of jobs, those that were done, and how many warps have ended. */
struct NicBoard {
  uint32_t now[NIC_MAX_RANKS + 1], seen[NIC_MAX_RANKS], own;
  __device__ __forceinline__ void look(const nic &n) {
    __syncthreads();
    if ((int)threadIdx.x <= n.nRanks) now[threadIdx.x] = (int)threadIdx.x < n.nRanks ? loadCount(&n.jobs[threadIdx.x].number) : loadCount(&n.helpers[1]);
    __syncthreads();
    nRanks = n.nRanks;
  }
  __device__ __forceinline__ bool isNew(int peer) const { return now[peer] != seen[peer]; }
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

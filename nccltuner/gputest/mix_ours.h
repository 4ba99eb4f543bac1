/* SPDX-License-Identifier: Apache-2.0
 *
 * What mix asks of libdynamiccl.so where kernels of ours are to run (--ours): that they did. NCCL's are right as well, so a mix that never
 * meets ours passes without having tested them.
 */
#ifndef DYN_MIX_OURS_H
#define DYN_MIX_OURS_H

#include <dlfcn.h>

#include "../preload/dynamiccl.h"
#include "mix_rank.h"

typedef decltype(&dynamicclAllToAllv) AllToAllv;

static const char *oursName() { return options.ours == DYNAMICCL_LSA ? "lsa" : options.ours == DYNAMICCL_GIN ? "gin" : "none"; }

// Calls of this process that kernels of ours have run; those of a graph when it was captured.
static uint64_t runByOurs() {
  static const auto asked = (decltype(&dynamicclIntercepted))dlsym(RTLD_DEFAULT, "dynamicclIntercepted");
  struct dynamicclCalls of[128];
  uint64_t all = 0;
  const size_t n = asked ? asked(of, 128) : 0;
  for (size_t i = 0; i < n && i < 128; i++) all += of[i].kernels;
  return all;
}

// This rank has kernels of the way that are to run, of which AllToAllv is one.
static bool hasOurs(const Comm &comm) {
  static const auto has = (decltype(&dynamicclHasAllToAllv))dlsym(RTLD_DEFAULT, "dynamicclHasAllToAllv");
  return has && has(comm.comm, options.ours ? options.ours : DYNAMICCL_LSA);
}

// True where it is on all ranks. Nothing of the communicator's may be under way on other streams than the first.
static bool allHave(Rank &r, const Comm &comm, bool here) {
  float lacks = here ? 0 : 1, *word;
  CU(cudaMalloc(&word, sizeof lacks));
  CU(cudaMemcpy(word, &lacks, sizeof lacks, cudaMemcpyHostToDevice));
  r.enterLane(comm.lane, 0);
  settle(comm.comm, ncclAllReduce(word, word, 1, ncclFloat32, ncclMax, comm.comm, r.streams[0]), "AllReduce");
  r.leaveLane(comm.lane, 0);
  CU(cudaStreamSynchronize(r.streams[0]));
  CU(cudaMemcpy(&lacks, word, sizeof lacks, cudaMemcpyDeviceToHost));
  CU(cudaFree(word));
  beat();
  return lacks == 0;
}

// The same call until kernels of ours run most of a batch, as they do where they are the base of what is chosen. False: not in `seconds`.
static bool callUntilOurs(Rank &r, const Comm &comm, const Call &call, Random &random, double seconds) {
  static const uint64_t kBatch = 100, kMost = 80;
  const double deadline = nowSeconds() + seconds;
  for (;;) {
    const uint64_t before = runByOurs();
    for (uint64_t i = 0; i < kBatch; i++) r.eager(comm, call, (uint32_t)random.next(), 0);
    r.drain();
    if (allHave(r, comm, runByOurs() - before >= kMost)) return true;
    if (!allHave(r, comm, nowSeconds() < deadline)) return false;
  }
}

#endif

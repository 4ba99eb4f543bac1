/* SPDX-License-Identifier: Apache-2.0
 *
 * What it costs that kernels stamp their times, and what the stamps say: the same calls without, with one in DYN_STAMP_EVERY, as in
 * graphs, and each of them, as calls that the host times, by turns.
 */
#ifndef DYN_BENCH_STAMPS_CUH
#define DYN_BENCH_STAMPS_CUH

#include "timed.cuh"

constexpr int kTurns = 9;

template <typename T>
static T medianOf(std::vector<T> all) {
  if (all.empty()) return 0;
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  return all[all.size() / 2];
}

/* Of one kernel; launch(call). */
template <typename Launch>
static void timeStamped(const Rank &k, const char *path, size_t bytes, const Call &c, Launch launch) {
  std::vector<double> us[3];
  std::vector<uint64_t> counters, signals;
  Call calls[3] = {c, c, c};
  calls[1].tag = 1;
  calls[2].tag = DYN_STAMP_TIMED | 1;
  memset(k.stamps, 0, DYN_STAMPS * sizeof *k.stamps);
  for (int i = 0; i < 3 * kTurns; i++) us[i % 3].push_back(timed(k, [&] { launch(calls[i % 3]); }));
  for (int i = 0; i < DYN_STAMPS; i++) {
    const volatile dyn_stamp *s = &k.stamps[i];
    if (s->word == 0) continue;
    counters.push_back(s->counterNs - s->beginNs), signals.push_back(s->signalNs - s->beginNs);
  }
  if (rank == 0)
    printf("{\"figure\":\"lsa stamps\",\"ranks\":%d%s,\"collective\":\"AllReduce\",\"path\":\"%s\",\"bytes\":%zu,\"without_us\":%.3f,\"with_us\":%.3f,\"each_us\":%.3f,\"stamped\":%zu,"
           "\"counter_us\":%.3f,\"signal_us\":%.3f}\n", numRanks, sharing(), path, bytes, medianOf(us[0]), medianOf(us[1]), medianOf(us[2]), signals.size(), medianOf(counters) / 1e3, medianOf(signals) / 1e3);
}

static void timeStamps(const Rank &k) {
  using T = __nv_bfloat16;
  const Kernels<T> kernels;
  for (size_t bytes : {1 << 10, 16 << 10, 256 << 10, 4 << 20}) {
    const Call c = {k.in, k.out, bytes / sizeof(T), (int32_t)Op::sum, 0, k.stamps, k.domain};
    if (bytes <= 64 << 10) timeStamped(k, "one shot", bytes, c, [&](const Call &it) { launchOn(k, kernels.oneShot, 16, 128, it); });
    else if (bytes <= 1 << 20) timeStamped(k, "two shots", bytes, c, [&](const Call &it) { launchOn(k, kernels.twoShot, 32, 256, it); });
    else timeStamped(k, "bulk", bytes, c, [&](const Call &it) { launchOn(k, kernels.bulk, 64, 512, it, k.bulk); });
  }
}

#endif

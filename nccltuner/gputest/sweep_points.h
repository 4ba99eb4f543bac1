/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep visits: collectives, sizes and forced choices, and the names that the tables use for them.
 */
#ifndef DYN_SWEEP_POINTS_H
#define DYN_SWEEP_POINTS_H

#include <string.h>

#include <string>
#include <vector>

enum Collective { Broadcast, Reduce, AllGather, ReduceScatter, AllReduce }; /* ncclFunc_t's numbers */
static const char *const kCollectives[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
/* NCCL_ALGO_*, NCCL_PROTO_* of src/include/nccl_tuner.h; the tables' spelling. */
enum { Tree = 0, Ring = 1, Pat = 6 };
enum { LL = 0, LL128 = 1, Simple = 2 };
static const char *const kProtocols[] = {"LL", "LL128", "Simple"};
static const int kChannels[] = {1, 2, 4, 8, 16, 24, 32};

static const char *algorithmName(int a) { return a == Tree ? "Tree" : a == Ring ? "Ring" : "PAT"; }

struct Point {
  Collective collective;
  size_t bytes;
  int algorithm, protocol, channels; /* algorithm -1: NCCL's default */
};

/* What NCCL can run at all (ncclTopoTuneModel, src/graph/tuning.cc); whether it may here, the cost table says. */
static std::vector<Point> choices(Collective c, size_t bytes) {
  std::vector<Point> out;
  for (int a : {Tree, Ring, Pat})
    for (int p : {LL, LL128, Simple}) {
      if (a == Tree && c != AllReduce) continue;
      if (a == Pat && (p != Simple || (c != AllGather && c != ReduceScatter))) continue;
      for (int n : kChannels) out.push_back({c, bytes, a, p, n});
    }
  return out;
}

/* The default stands first, in the middle and last of each bucket: drift shows, and the mean has less noise. */
static std::vector<Point> points(const std::string &collectives, size_t minBytes, size_t maxBytes) {
  std::vector<Point> out;
  for (Collective c : {AllReduce, AllGather, ReduceScatter, Broadcast, Reduce}) {
    if (("," + collectives + ",").find("," + std::string(kCollectives[c]) + ",") == std::string::npos) continue;
    for (size_t bytes = minBytes; bytes <= maxBytes; bytes *= 4) {
      std::vector<Point> forced = choices(c, bytes);
      const Point byDefault = {c, bytes, -1, 0, 0};
      out.push_back(byDefault);
      for (size_t i = 0; i < forced.size(); i++) {
        if (i == forced.size() / 2) out.push_back(byDefault);
        out.push_back(forced[i]);
      }
      out.push_back(byDefault);
    }
  }
  return out;
}

/* Buckets and choices whose single calls are recorded: small, middle, large; the default and one that often wins. */
static std::vector<Point> noisePoints(bool network) {
  const size_t K = 1 << 10, M = 1 << 20;
  if (network)
    return {{AllReduce, K, -1, 0, 0},           {AllReduce, K, Tree, LL, 1},           {AllReduce, 16 * K, -1, 0, 0},
            {AllReduce, 64 * K, -1, 0, 0},      {AllReduce, 64 * K, Ring, LL, 4},      {AllReduce, 256 * K, -1, 0, 0},
            {AllReduce, M, -1, 0, 0},           {AllReduce, M, Ring, Simple, 4},       {AllGather, 16 * K, -1, 0, 0},
            {AllGather, M, Ring, Simple, 2},    {ReduceScatter, 64 * K, -1, 0, 0},     {ReduceScatter, M, -1, 0, 0}};
  return {{AllReduce, K, -1, 0, 0},             {AllReduce, 64 * K, -1, 0, 0},         {AllReduce, 64 * K, Ring, LL, 8},
          {AllReduce, M, -1, 0, 0},             {AllReduce, M, Ring, LL128, 16},       {AllReduce, 16 * M, -1, 0, 0},
          {AllReduce, 64 * M, -1, 0, 0},        {AllGather, 64 * K, -1, 0, 0},         {AllGather, 4 * M, -1, 0, 0},
          {AllGather, 4 * M, Ring, LL128, 24},  {ReduceScatter, 64 * K, -1, 0, 0},     {ReduceScatter, 4 * M, -1, 0, 0}};
}

#endif

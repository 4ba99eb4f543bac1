/* SPDX-License-Identifier: Apache-2.0 */
#include "tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "table.h"

/* Spelling of events (src/collectives.cc:58) ... */
static const char *const eventAlgos[NUM_ALGOS] = {"TREE", "RING",      "COLLNET_DIRECT", "COLLNET_CHAIN",
                                                  "NVLS", "NVLS_TREE", "PAT"};
static const char *const eventProtos[NUM_PROTOS] = {"LL", "LL128", "SIMPLE"};
/* ... and of NCCL_ALGO and NCCL_PROTO (ncclAlgoStr, ncclProtoStr, src/init.cc), compared without case. */
static const char *const envAlgos[NUM_ALGOS] = {"Tree", "Ring",     "CollNetDirect", "CollNetChain",
                                                "NVLS", "NVLSTree", "PAT"};
static const char *const envProtos[NUM_PROTOS] = {"LL", "LL128", "Simple"};

const char *tuning_algo_name(int algo) { return algo >= 0 && algo < NUM_ALGOS ? eventAlgos[algo] : "Unknown"; }
const char *tuning_proto_name(int proto) { return proto >= 0 && proto < NUM_PROTOS ? eventProtos[proto] : "Unknown"; }

/* ncclTunerConstantsDefaults (src/graph/tuning.cc:142), the columns that Hopper uses. */
static const double baseLatencies[NUM_ALGOS][NUM_PROTOS] = {
    {6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0}, {0}, {0}, {0}, {8.0, 8.0, 8.0}};
static const double nvlinkLatencies[2][NUM_PROTOS] = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}}; /* Tree, Ring */
static const double netLatencies[2][NUM_PROTOS] = {{5.0, 8.5, 14}, {2.7, 4.0, 14.0}};     /* Tree, Ring */
static const double patNetLatency = 14, patTreeNetLatency = 14; /* Simple, the only protocol of PAT */
static const double perChMaxLL128Bw[2][3] = {{36.7, 36.7, 29.0}, {36.7, 36.7, 36.7}}; /* Tree, Ring; 1, 2, 4+ nodes */
static const double perChMaxTreeBw[3] = {38.7, 41.4, 36.0};
static const double netOverhead = 1.0; /* getNetOverhead, tuning.cc:214, Intel host */

/* The topology graph of both Ring and Tree. NVLink: what NCCL prints on 8 Hopper GPUs behind NVSwitch (24 channels of
 * 20 GB/s). Network: two channels of a 40 Gb/s socket. Only the size of the times depends on this, no -1 mark does. */
struct graph { int nChannels; double bwIntra, bwInter, latencyInter; };
static struct graph graph_of(int nNodes) {
  return nNodes == 1 ? (struct graph){24, 20, 20, 0} : (struct graph){2, 5, 2.5, 10};
}

/* Which algorithms NCCL models at all for a collective: tuning.cc:273-277. */
static int modelled(int func, int algo, int proto, int patEnabled) {
  if (func == FUNC_BROADCAST || func == FUNC_REDUCE) return algo == ALGO_RING;
  if (func == FUNC_ALLGATHER || func == FUNC_REDUCESCATTER)
    return algo == ALGO_RING || (algo == ALGO_PAT && proto == PROTO_SIMPLE && patEnabled); /* tuning.cc:282 */
  return algo != ALGO_PAT;
}

/* ncclTopoTuneModel's bandwidths (tuning.cc:284-352), in bytes of the collective. */
static double bandwidth(const struct tuning *t, int algo, int proto, int nSteps) {
  struct graph g = graph_of(t->nNodes);
  int index2 = t->nNodes <= 2 ? t->nNodes - 1 : 2; /* tuning.cc:250 */
  double llMaxBw = t->nNodes == 1 ? 141.0 : t->nNodes == 2 ? 39.0 : 20.4; /* Hopper on one node, Intel host on more */
  double bus = g.nChannels * (t->nNodes <= 2 ? g.bwIntra : g.bwInter);
  if (algo == ALGO_RING && proto == PROTO_LL) bus = fmin(llMaxBw, bus * .5);
  if (algo == ALGO_RING && proto == PROTO_LL128) bus = fmin(bus * 0.92, g.nChannels * perChMaxLL128Bw[1][index2]);
  if (algo == ALGO_TREE) {
    bus = fmin(bus * .92, g.nChannels * perChMaxTreeBw[index2]);
    if (proto == PROTO_LL) bus = fmin(bus / 3.8, llMaxBw);
    if (proto == PROTO_LL128)
      bus = fmin(bus * (t->nNodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0), g.nChannels * perChMaxLL128Bw[0][index2]);
  }
  if (algo == ALGO_PAT) return bus * .75; /* AllGather and ReduceScatter off the ring keep the bus bandwidth */
  return algo == ALGO_RING ? bus * t->nRanks / nSteps : bus * .5;
}

/* ncclTopoTuneModel's latencies (tuning.cc:353-403). */
static double latency(const struct tuning *t, int func, int algo, int proto, int nSteps) {
  struct graph g = graph_of(t->nNodes);
  double base = baseLatencies[algo][proto];
  double hops = floor(log2(t->nNodes));
  if (algo == ALGO_PAT) {
    double inter = (t->nRanks == t->nNodes ? patTreeNetLatency : patNetLatency) + 2 * g.latencyInter;
    return base + hops * (inter / 3.5) + t->nRanks * 2.8;
  }
  int row = algo == ALGO_RING;
  double intra = nvlinkLatencies[row][proto];
  double inter = netLatencies[t->nRanks == t->nNodes ? 0 : row][proto];
  inter += g.latencyInter * (proto == PROTO_SIMPLE ? 2 : 1);
  if (algo == ALGO_TREE) return base + 2 * ((t->nRanks / t->nNodes - 1) * intra + hops * inter);
  if (func == FUNC_BROADCAST || func == FUNC_REDUCE) {
    int hw = proto == PROTO_SIMPLE ? 0 : 1;
    return base + nSteps * (t->nNodes == 1 ? nvlinkLatencies[hw][proto] : netLatencies[hw][proto]);
  }
  int interSteps = t->nNodes == 1 ? 0 : (func == FUNC_ALLREDUCE ? 2 : 1) * (t->nNodes - 1);
  if (t->nNodes > 1) intra = fmax(intra, netOverhead * (proto == PROTO_SIMPLE ? 3 : 1));
  return base + (nSteps - interSteps) * intra + interSteps * inter;
}

/* parseList (tuning.cc:54): "Ring,Tree", "^LL128", "Ring;allreduce:Tree". list[func * n + element]. */
static int parse_list(const char *variable, const char *text, const char *const *names, int n, int *list, char *error,
                      size_t errorSize) {
  char *copy = strdup(text), *rest = copy, *entry;
  int ok = copy != NULL;
  for (int first = 1; ok && (entry = strsep(&rest, ";")) != NULL; first = 0) {
    char *colon = strchr(entry, ':'), *elements = entry;
    int only = -1;
    if (colon != NULL) {
      *colon = '\0';
      elements = colon + 1;
      only = table_collective(entry);
      ok = only >= 0;
    } else {
      ok = first; /* NCCL: all entries except the first must have a prefix */
    }
    int negated = *elements == '^';
    elements += negated;
    for (int f = 0; f < NUM_FUNCS; f++)
      for (int e = 0; e < n; e++)
        if (only < 0 || f == only) list[f * n + e] = negated;
    char *element;
    while (ok && (element = strsep(&elements, ",")) != NULL) {
      int e = 0;
      while (e < n && strcasecmp(element, names[e]) != 0) e++;
      ok = e < n;
      for (int f = 0; ok && f < NUM_FUNCS; f++)
        if (only < 0 || f == only) list[f * n + e] = !negated;
    }
  }
  free(copy);
  if (!ok) snprintf(error, errorSize, "%s=%s: not a list that NCCL accepts; unset it or write for example Ring,Tree",
                    variable, text);
  return ok ? 0 : -1;
}

int tuning_init(struct tuning *t, int nRanks, int nNodes, int nChannels, int ll128Net, const char *algoEnv,
                const char *protoEnv, char *error, size_t errorSize) {
  int algoEnable[NUM_FUNCS * NUM_ALGOS], protoEnable[NUM_FUNCS * NUM_PROTOS];
  memset(t, 0, sizeof *t);
  t->nRanks = nRanks;
  t->nNodes = nNodes;
  t->nChannels = nChannels;
  t->userForced = algoEnv != NULL || protoEnv != NULL;
  for (int i = 0; i < NUM_FUNCS * NUM_ALGOS; i++) algoEnable[i] = 1;
  for (int i = 0; i < NUM_FUNCS * NUM_PROTOS; i++) protoEnable[i] = i % NUM_PROTOS == PROTO_LL128 ? 2 : 1;
  if (protoEnv != NULL && parse_list("NCCL_PROTO", protoEnv, envProtos, NUM_PROTOS, protoEnable, error, errorSize))
    return -1;
  if (algoEnv != NULL && parse_list("NCCL_ALGO", algoEnv, envAlgos, NUM_ALGOS, algoEnable, error, errorSize)) return -1;
  if (nRanks <= 1) return 0;

  for (int f = 0; f < NUM_FUNCS; f++) {
    int nSteps = f == FUNC_ALLREDUCE ? 2 * (nRanks - 1)
                 : f == FUNC_ALLGATHER || f == FUNC_REDUCESCATTER ? nRanks - 1
                                                                  : nRanks; /* tuning.cc:268 */
    for (int a = 0; a < NUM_ALGOS; a++) {
      /* NVLS and NVLSTree: nvlsSupport is 0, enqueue.cc:1802. CollNet*: collNetSupport is 0, enqueue.cc:1797. */
      if (a != ALGO_TREE && a != ALGO_RING && a != ALGO_PAT) continue;
      for (int p = 0; p < NUM_PROTOS; p++) {
        /* ncclPatEnable, tuning.cc:202: one GPU a node. */
        if (!modelled(f, a, p, nNodes == nRanks)) continue;
        int enable = protoEnable[f * NUM_PROTOS + p];
        /* LL128 that the user did not name: only over NVLink inside a node and near NICs between, tuning.cc:480. */
        if (enable == 2) enable = nNodes == 1 || ll128Net;
        if (!enable || !algoEnable[f * NUM_ALGOS + a]) continue; /* tuning.cc:495 */
        t->bandwidths[f][a][p] = (float)bandwidth(t, a, p, nSteps);
        t->latencies[f][a][p] = (float)latency(t, f, a, p, nSteps);
      }
    }
  }
  return 0;
}

/* tuning.cc:578: trees do not stick to the model at medium sizes. Powers of two from 64 B. */
static const float treeCorrection[NUM_PROTOS][23] = {
    {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

/* ncclTopoGetAlgoTime, tuning.cc:584. */
static float algo_time(const struct tuning *t, int func, int algo, int proto, size_t bytes, int numPipeOps) {
  float bw = t->bandwidths[func][algo][proto], lat = t->latencies[func][algo][proto];
  if (bw == 0) return -1.0f;
  int logSize = bytes >= 64 ? 57 - __builtin_clzll(bytes) : -1; /* log2i(bytes >> 6) */
  if (algo == ALGO_TREE && func == FUNC_ALLREDUCE && logSize >= 0 && logSize < 23) bw *= treeCorrection[proto][logSize];
  if (algo == ALGO_RING && proto == PROTO_SIMPLE && t->nNodes > 1 && func == FUNC_ALLREDUCE &&
      bytes / (size_t)(t->nChannels * t->nRanks) >= 64)
    lat *= 1.4f; /* plateau of the ring */
  int count = algo == ALGO_RING ? numPipeOps : (numPipeOps + 9) / 10; /* NCCL_MAX_DEV_WORK_BATCH_COLLS */
  return lat * (float)count + (float)bytes / (1000 * bw);
}

void tuning_cost_table(const struct tuning *t, int func, size_t bytes, int numPipeOps,
                       float table[NUM_ALGOS][NUM_PROTOS]) {
  for (int a = 0; a < NUM_ALGOS; a++)
    for (int p = 0; p < NUM_PROTOS; p++) table[a][p] = -1.0f; /* NCCL_ALGO_PROTO_IGNORE, enqueue.cc:1775 */
  if (t->nRanks == 1) {
    table[ALGO_RING][PROTO_SIMPLE] = 0.0f; /* enqueue.cc:1791 */
    return;
  }
  for (int a = 0; a < NUM_ALGOS; a++)
    for (int p = 0; p < NUM_PROTOS; p++) table[a][p] = algo_time(t, func, a, p, bytes, numPipeOps);
}

uint32_t tuning_allowed(float table[NUM_ALGOS][NUM_PROTOS]) {
  uint32_t allowed = 0;
  for (int a = 0; a < NUM_ALGOS; a++)
    for (int p = 0; p < NUM_PROTOS; p++)
      if (table[a][p] != -1.0f) allowed |= 1u << (3 * a + p);
  return allowed;
}

int tuning_select(float table[NUM_ALGOS][NUM_PROTOS], int *algo, int *proto) {
  float least = 3600000000.0f; /* enqueue.cc:1828 */
  *algo = *proto = -1;
  for (int a = 0; a < NUM_ALGOS; a++) {
    for (int p = 0; p < NUM_PROTOS; p++) {
      if (table[a][p] == -1.0f || !(table[a][p] >= 0.0f) || !(table[a][p] < least)) continue;
      least = table[a][p];
      *algo = a;
      *proto = p;
    }
  }
  return *algo < 0 ? -1 : 0;
}

int tuning_channels(const struct tuning *t, int algo, int proto, size_t bytes, int *nWarps) {
  struct graph g = graph_of(t->nNodes);
  int threads = proto == PROTO_LL128 ? 640 : 512; /* device.h:90-109 */
  if (algo == ALGO_RING && proto == PROTO_SIMPLE && g.bwIntra * g.nChannels <= 12) threads = 256; /* tuning.cc:231 */
  int threshold = proto == PROTO_SIMPLE ? 64 : 8; /* comm.h:41 */
  if (algo == ALGO_RING && proto == PROTO_LL) threshold *= t->nRanks; /* tuning.cc:547 */
  int nc = t->nChannels, nt = threads;
  while (nc >= 2 && bytes < (size_t)nc * (size_t)nt * (size_t)threshold) nc--; /* enqueue.cc:1887 */
  while (nt % 128 == 0 && bytes < (size_t)nc * (size_t)nt * (size_t)threshold) nt /= 2;
  if (proto == PROTO_SIMPLE && algo == ALGO_RING) nt += 32;
  if (nt < 96) nt = 96;
  if (algo == ALGO_TREE || algo == ALGO_PAT) nt = 640;
  *nWarps = nt / 32;
  return nc;
}

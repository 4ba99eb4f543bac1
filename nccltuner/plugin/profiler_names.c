/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's names -> numbers. Names: ncclFuncToString and its siblings, src/collectives.cc v2.30.7 (the same since v2.24).
 * A name that is not listed here is not guessed: symmetric kernels (AGxLL_R), later algorithms and types are unknown.
 */
#include "profiler.h"

#include <string.h>

static const char *const funcNames[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
static const char *const algorithmNames[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE",
                                             "PAT"};
static const char *const protocolNames[] = {"LL", "LL128", "SIMPLE"};
/* In the order of ncclDataType_t, src/nccl.h.in v2.30.7. */
static const char *const datatypeNames[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                            "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                            "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int find(const char *const *names, size_t n, const char *name) {
  for (size_t i = 0; name != NULL && i < n; i++)
    if (strcmp(names[i], name) == 0) return (int)i;
  return -1;
}

int dyn_func_number(const char *name) { return find(funcNames, COUNT(funcNames), name); }

uint8_t dyn_algorithm_number(const char *name) {
  int i = find(algorithmNames, COUNT(algorithmNames), name);
  return i < 0 ? DYN_UNKNOWN : (uint8_t)i;
}

uint8_t dyn_protocol_number(const char *name) {
  int i = find(protocolNames, COUNT(protocolNames), name);
  return i < 0 ? DYN_UNKNOWN : (uint8_t)i;
}

/* ncclDatatypeToString has no name for ncclUint8 and says "Unknown" (v2.24 to v2.30.7): such a collective has no size
 * for us, since a type that is really new would say the same. */
unsigned dyn_datatype_bytes(const char *name) {
  return dyn_datatype_number_bytes(find(datatypeNames, COUNT(datatypeNames), name));
}

/* getCollInfo's nBytes is elementSize * ncclFuncMaxSendRecvCount(func, nRanks, count): AllGather and ReduceScatter
 * count the whole buffer (src/include/enqueue.h, src/enqueue.cc v2.30.7). AllGather and Broadcast arrive here as
 * ncclInt8 with the count in bytes already; the product is the same. v1 to v3 do not tell nRanks, but trafficBytes of
 * v1 and v2 is the product for these two (ncclFuncTrafficPerByte). */
uint64_t dyn_collective_bytes(int func, unsigned elementBytes, uint64_t count, uint64_t trafficBytes, unsigned nRanks) {
  uint64_t bytes;
  if (__builtin_mul_overflow(count, (uint64_t)elementBytes, &bytes)) return 0;
  if (func != 2 && func != 3) return bytes;
  if (nRanks == 0) return trafficBytes;
  return __builtin_mul_overflow(bytes, (uint64_t)nRanks, &bytes) ? 0 : bytes;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A newer descriptor for an older chained profiler, as NCCL would have given it. v7, v6 and v5 share offsets: a newer
 * one only adds members at the end of a struct, so the older is a prefix. v4 has a narrower type, no API events, and
 * the Group as parent of a Coll, which v5 on carries in parentGroup (src/plugin/profiler/profiler_v4.cc, v2.30.7).
 */
#include "chain.h"

#include <stddef.h>
#include <string.h>

#define SAME(a, b, field) \
  _Static_assert(offsetof(ncclProfilerEventDescr_v##a##_t, field) == offsetof(ncclProfilerEventDescr_v##b##_t, field), \
                 "not a prefix: " #field)
SAME(5, 6, coll.parentGroup);
SAME(6, 7, coll.parentGroup);
SAME(5, 6, collApi.graphCaptured);
SAME(6, 7, collApi.graphCaptured);
SAME(5, 6, p2pApi.graphCaptured);
SAME(6, 7, p2pApi.graphCaptured);
SAME(5, 6, p2p.parentGroup);
SAME(6, 7, p2p.parentGroup);
SAME(5, 6, proxyOp.isSend);
SAME(6, 7, proxyOp.isSend);
SAME(5, 6, netPlugin.data);
SAME(6, 7, netPlugin.data);
SAME(6, 7, ceColl.stream);
SAME(6, 7, ceCollBatch.useIntraSync);
SAME(5, 6, kernelCh.pTimer);
SAME(6, 7, kernelCh.pTimer);

int dyn_chain_converts(int from, int to) { return to == from || (from >= 5 && to >= 4 && to < from); }

int dyn_chain_types(int to) {
  static const int bits[] = {0, 6, 6, 8, 8, 12, 15, 16}; /* by version: 1, 2: up to ProxyCtrl; 3, 4: NetPlugin ... */
  return (1 << bits[to]) - 1;
}

int dyn_chain_knows_state(int to, int state) {
  /* The deprecated ProxyOp states 0 to 7 end with v3, InProgress_v4 begins with v4 (src/plugin/nccl_profiler.h). */
  static const int last[] = {0, 18, 18, 21, 22, 24, 30, 31};
  if (to < 4) return state <= last[to];
  return state >= ncclProfilerProxyStepSendGPUWait && state <= last[to];
}

int dyn_chain_starters(uint64_t type) {
  /* ncclProfilerStart...Event, src/plugin/profiler.cc v2.30.7: parents are started for their children's sake. */
  const int parts = ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileKernelCh | ncclProfileNetPlugin |
                    ncclProfileKernelPhase;
  const int ce = ncclProfileCeColl | ncclProfileCeSync | ncclProfileCeBatch;
  switch (type) {
    case ncclProfileGroupApi:
      return parts | ce | ncclProfileGroupApi | ncclProfileP2pApi | ncclProfileCollApi | ncclProfileKernelLaunch |
             ncclProfileGroup | ncclProfileColl | ncclProfileP2p;
    case ncclProfileCollApi: return parts | ce | ncclProfileCollApi | ncclProfileColl;
    case ncclProfileP2pApi: return parts | ncclProfileP2pApi | ncclProfileP2p;
    case ncclProfileGroup: return parts | ncclProfileGroup | ncclProfileColl | ncclProfileP2p;
    case ncclProfileColl: return parts | ncclProfileColl;
    case ncclProfileP2p: return parts | ncclProfileP2p;
    case ncclProfileProxyOp: return ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileNetPlugin;
    case ncclProfileProxyStep: return ncclProfileProxyStep | ncclProfileNetPlugin;
    case ncclProfileKernelCh: return ncclProfileKernelCh | ncclProfileKernelPhase;
    case ncclProfileCeColl: return ce;
    default: return (int)type;
  }
}

/* Ours -> the chained profiler's; one that is none of ours is the chained profiler's already. foreign: the handle was
 * made in another process, where a handle of ours cannot be looked up from here. */
static void *map_parent(void *parent, int foreign) {
  if (!dyn_handle_ours(parent)) return parent;
  struct dyn_slot *slot = foreign ? NULL : dyn_slot_pin(parent);
  if (slot == NULL) return NULL;
  void *chain = slot->chain;
  dyn_slot_unpin(slot, 0);
  return chain;
}

static int to_v4(ncclProfilerEventDescr_v4_t *out, const ncclProfilerEventDescr_v5_t *in) {
  *out = (ncclProfilerEventDescr_v4_t){.type = (uint8_t)in->type, .parentObj = in->parentObj, .rank = in->rank};
  switch (in->type) {
    case ncclProfileColl:
      out->parentObj = in->coll.parentGroup;
      out->coll.seqNumber = in->coll.seqNumber;
      out->coll.func = in->coll.func;
      out->coll.sendBuff = in->coll.sendBuff;
      out->coll.recvBuff = in->coll.recvBuff;
      out->coll.count = in->coll.count;
      out->coll.root = in->coll.root;
      out->coll.datatype = in->coll.datatype;
      out->coll.nChannels = in->coll.nChannels;
      out->coll.nWarps = in->coll.nWarps;
      out->coll.algo = in->coll.algo;
      out->coll.proto = in->coll.proto;
      break;
    case ncclProfileP2p:
      out->parentObj = in->p2p.parentGroup;
      out->p2p.func = in->p2p.func;
      out->p2p.buff = in->p2p.buff;
      out->p2p.datatype = in->p2p.datatype;
      out->p2p.count = in->p2p.count;
      out->p2p.peer = in->p2p.peer;
      out->p2p.nChannels = in->p2p.nChannels;
      break;
    case ncclProfileProxyOp: memcpy(&out->proxyOp, &in->proxyOp, sizeof out->proxyOp); break;
    case ncclProfileProxyStep: out->proxyStep.step = in->proxyStep.step; break;
    case ncclProfileKernelCh: memcpy(&out->kernelCh, &in->kernelCh, sizeof out->kernelCh); break;
    case ncclProfileNetPlugin: memcpy(&out->netPlugin, &in->netPlugin, sizeof out->netPlugin); break;
    default: break;
  }
  return 1;
}

int dyn_chain_convert(union dyn_chain_descr *out, int from, int to, const struct dyn_event *event, const void *descr) {
  static const size_t sizes[] = {0,
                                 sizeof(ncclProfilerEventDescr_v1_t),
                                 sizeof(ncclProfilerEventDescr_v2_t),
                                 sizeof(ncclProfilerEventDescr_v3_t),
                                 sizeof(ncclProfilerEventDescr_v4_t),
                                 sizeof(ncclProfilerEventDescr_v5_t),
                                 sizeof(ncclProfilerEventDescr_v6_t),
                                 sizeof(ncclProfilerEventDescr_v7_t)};
  if (!(event->type & (uint64_t)dyn_chain_types(to)) || !dyn_chain_converts(from, to)) return 0;
  int foreign = event->type == ncclProfileProxyOp && event->proxyOp.pid != dyn_own_pid();
  if (from == 4 || to != 4) {
    memcpy(out, descr, sizes[to]);
  } else {
    union dyn_chain_descr prefix;
    memcpy(&prefix, descr, sizes[5]);
    to_v4(&out->v4, &prefix.v5);
  }
  /* The parent is at the same place in every version: behind a type that is as wide as its alignment. */
  out->v7.parentObj = map_parent(out->v7.parentObj, foreign);
  if (to >= 5 && event->type == ncclProfileColl) out->v5.coll.parentGroup = map_parent(out->v5.coll.parentGroup, 0);
  if (to >= 5 && event->type == ncclProfileP2p) out->v5.p2p.parentGroup = map_parent(out->v5.p2p.parentGroup, 0);
  return 1;
}
_Static_assert(offsetof(ncclProfilerEventDescr_v1_t, parentObj) == offsetof(ncclProfilerEventDescr_v7_t, parentObj) &&
                 offsetof(ncclProfilerEventDescr_v4_t, parentObj) == offsetof(ncclProfilerEventDescr_v7_t, parentObj),
               "parentObj moved");

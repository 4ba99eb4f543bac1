/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t lines = MOST + 8, bulkPacks = MOST / 2 + 8; /* room of the most elements of 8 bytes, and more */
static const size_t slotBytes = (MAX_RANKS * MOST + 16) * 8;
static const uint64_t waitNs = 20000000000u;

void rig_want(int want, int code, const char *call, const char *file, int line) {
  if (code == want) return;
  fprintf(stderr, "%s:%d: %s: %d, want %d\n", file, line, call, code, want);
  exit(1);
}

void rig_check(int holds, const char *what, const char *file, int line) {
  if (holds) return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  exit(1);
}

/* Peers write scratch memory, bulk memory and flags, one behind the other. */
static size_t scratch_bytes(int nRanks) { return 2 * (size_t)nRanks * lines * DYN_LINE_BYTES; }
static size_t bulk_bytes(int nRanks) { return dyn_bulk_bytes(bulkPacks, nRanks); }
static const size_t flagBytes = DYN_KERNEL_MAX_BLOCKS * DYN_KERNEL_MAX_RANKS * sizeof(uint32_t), meetingBytes = DYN_MEETINGS * sizeof(struct dyn_meeting);

static void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

void rank_open(struct rank *r, int rank, int nRanks) {
  static const unsigned char fatbin[64] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
  *r = (struct rank){.rank = rank, .nRanks = nRanks, .last = -1};
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&r->context, rank));
  MUST(cuCtxSetCurrent(r->context));
  MUST(cuModuleLoadData(&r->module, fatbin));
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamCreate(&r->streams[i], CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&r->tail, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemAlloc_v2(&r->shared, scratch_bytes(nRanks) + bulk_bytes(nRanks) + flagBytes + meetingBytes));
  MUST(cuMemAlloc_v2(&r->in, MAX_CALLS * slotBytes));
  MUST(cuMemAlloc_v2(&r->out, MAX_CALLS * slotBytes));
  MUST(cuMemAlloc_v2(&r->counters, (DYN_KERNEL_COUNTERS + DYN_KERNEL_MAX_BLOCKS) * sizeof(uint32_t)));
  MUST(cuMemsetD8_v2(r->counters, 0, (DYN_KERNEL_COUNTERS + DYN_KERNEL_MAX_BLOCKS) * sizeof(uint32_t)));
  MUST(cuMemAllocHost_v2((void **)&r->stop, sizeof *r->stop));
  MUST(cuMemAllocHost_v2((void **)&r->fault, sizeof *r->fault));
}

void rank_connect(struct rank *r, const CUdeviceptr *shared) {
  struct dyn_domain *d = &r->domain;
  *d = (struct dyn_domain){.rank = r->rank, .nRanks = r->nRanks, .lines = lines, .calls = pointer(r->counters),
                           .stop = r->stop, .fault = r->fault, .waitNs = waitNs};
  r->bulk = (struct dyn_bulk){.passed = d->calls + DYN_KERNEL_COUNTERS, .packs = bulkPacks};
  for (int p = 0; p < r->nRanks; p++) {
    d->scratch[p] = pointer(shared[p]);
    r->bulk.memory[p] = d->scratch[p] + scratch_bytes(r->nRanks);
    r->bulk.flags[p] = (uint32_t *)(r->bulk.memory[p] + bulk_bytes(r->nRanks));
    r->bulk.meetings[p] = (struct dyn_meeting *)((char *)r->bulk.flags[p] + flagBytes);
  }
}

void rank_close(struct rank *r) {
  CHECK(*r->fault == 0);
  MUST(cuCtxSetCurrent(r->context));
  MUST(cuModuleUnload(r->module));
  MUST(cuEventDestroy_v2(r->tail));
  for (int i = 0; i < 4; i++) MUST(cuMemFree_v2((CUdeviceptr[]){r->shared, r->in, r->out, r->counters}[i]));
  MUST(cuMemFreeHost(r->stop));
  MUST(cuMemFreeHost(r->fault));
}

/* Where a call sends from and writes to. */
static void buffers(const struct rank *r, const struct step *s, int slot, char **in, char **out) {
  size_t bytes = type_bytes(s->type), part = (size_t)r->rank * s->count * bytes;
  *in = (char *)pointer(r->in) + (size_t)slot * slotBytes + s->shift * bytes;
  *out = (char *)pointer(r->out) + (size_t)slot * slotBytes + s->shift * bytes;
  if (!s->inPlace) return;
  size_t sent = step_sent(s, r->nRanks), got = step_got(s, r->nRanks);
  if (got > sent) *in = *out + part;      /* AllGather */
  else if (sent > got) *out = *in + part; /* ReduceScatter */
  else *out = *in;
}

void rank_fill(struct rank *r, const struct step *steps, int from, int to) {
  static _Thread_local char host[(MAX_RANKS * MOST + 16) * 8];
  for (int slot = from; slot < to; slot++) {
    const struct step *s = &steps[slot];
    size_t bytes = type_bytes(s->type), sent = step_sent(s, r->nRanks);
    char *in, *out;
    buffers(r, s, slot, &in, &out);
    MUST(cuMemsetD8_v2(r->out + (size_t)slot * slotBytes, 0xa5, slotBytes));
    for (size_t i = 0; i < sent; i++) step_value(s, r->nRanks, r->rank, i, host + i * bytes);
    MUST(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)in, host, sent * bytes));
  }
}

/* Arguments are overwritten as soon as the launch is back. */
static void launch(struct rank *r, const struct step *s, int slot, CUstream stream) {
  char *in, *out;
  CUfunction function;
  struct dyn_call call;
  struct dyn_bulk bulk = r->bulk;
  int root = s->root, moves = strchr(kernel_name(s), '_') == NULL;
  buffers(r, s, slot, &in, &out);
  call = (struct dyn_call){in, out, s->count * (moves ? type_bytes(s->type) : 1), s->op, 0, NULL, r->domain};
  void *arguments[] = {&call, strcmp(kernel_name(s), "broadcast") == 0 ? (void *)&root : (void *)&bulk};
  MUST(cuModuleGetFunction(&function, r->module, kernel_name(s)));
  MUST(cuLaunchKernel(function, s->grid, 1, 1, s->block, 1, 1, 0, stream, arguments, NULL));
  memset(&call, 0xee, sizeof call);
  memset(&bulk, 0xee, sizeof bulk);
  memset(&root, 0xee, sizeof root);
  memset(arguments, 0xee, sizeof arguments);
}

/* Kernels of a communicator follow each other, whatever their streams. */
static void follow(struct rank *r, int stream) {
  if (r->last >= 0 && r->last != stream) MUST(cuEventRecord(r->tail, r->streams[r->last]));
  if (r->last != -1 && r->last != stream) MUST(cuStreamWaitEvent(r->streams[stream], r->tail, CU_EVENT_WAIT_DEFAULT));
  r->last = stream;
}

void rank_issue(struct rank *r, const struct step *steps, int from, int to) {
  for (int slot = from; slot < to; slot++) {
    const struct step *s = &steps[slot];
    follow(r, s->stream);
    if (!s->inPlace) MUST(cuMemsetD8Async(r->out + (size_t)slot * slotBytes, 0x5a, slotBytes, r->streams[s->stream]));
    launch(r, s, slot, r->streams[s->stream]);
    /* What it has sent it needs no more. */
    if (!s->inPlace) MUST(cuMemsetD8Async(r->in + (size_t)slot * slotBytes, 0x3c, slotBytes, r->streams[s->stream]));
  }
}

/* As a library does it that sees one call at a time: the graph waits for what was before, and one node, moved behind each
 * call in turn, tells what comes after. */
CUgraphExec rank_capture(struct rank *r, const struct step *steps, int from, int to) {
  CUstream stream = r->streams[0];
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode record = NULL, before = NULL;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuStreamWaitEvent(stream, r->tail, CU_EVENT_WAIT_EXTERNAL));
  for (int slot = from; slot < to; slot++) {
    CUstreamCaptureStatus status;
    const CUgraphNode *last;
    size_t count;
    launch(r, &steps[slot], slot, stream);
    MUST(cuStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, &last, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1);
    if (record == NULL) {
      MUST(cuGraphAddEventRecordNode(&record, graph, last, count, r->tail));
    } else {
      MUST(cuGraphRemoveDependencies_v2(graph, &before, &record, NULL, 1));
      MUST(cuGraphAddDependencies_v2(graph, last, &record, NULL, 1));
    }
    before = *last;
  }
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  return exec;
}

void rank_replay(struct rank *r, CUgraphExec exec) {
  if (r->last >= 0) MUST(cuEventRecord(r->tail, r->streams[r->last]));
  MUST(cuGraphLaunch(exec, r->streams[0]));
  r->last = -2;
}

void rank_wait(struct rank *r, int how) {
  int both = 0;
  if (r->last >= 0) MUST(cuEventRecord(r->tail, r->streams[r->last]));
  switch (how) {
    case 0: for (int i = 0; i < STREAMS; i++) MUST(cuStreamSynchronize(r->streams[i])); break;
    case 1: MUST(cuCtxSynchronize()); break;
    case 2: MUST(cuEventSynchronize(r->tail)); break;
    case 3:
      while ((both = cuEventQuery(r->tail)) == CUDA_ERROR_NOT_READY) continue;
      MUST(both);
      break;
    default: return; /* copies wait, too */
  }
  MUST(cuEventQuery(r->tail));
}

uint64_t rank_verify(struct rank *r, const struct step *steps, int from, int to) {
  static _Thread_local unsigned char host[(MAX_RANKS * MOST + 16) * 8], wanted[8];
  uint64_t compared = 0;
  for (int slot = from; slot < to; slot++) {
    const struct step *s = &steps[slot];
    size_t bytes = type_bytes(s->type), got = step_got(s, r->nRanks), behind = s->inPlace ? 0 : 8;
    char *in, *out;
    buffers(r, s, slot, &in, &out);
    MUST(cuMemcpyDtoH_v2(host, (CUdeviceptr)(uintptr_t)out, (got + behind) * bytes));
    for (size_t i = 0; i < got; i++, compared++) {
      step_wanted(s, r->nRanks, r->rank, i, wanted);
      if (memcmp(host + i * bytes, wanted, bytes) == 0) continue;
      fprintf(stderr, "rank %d of %d, %s, type %d, operator %d, %zu elements%s: element %zu of call %d is wrong, fault %lx\n",
              r->rank, r->nRanks, kernel_name(s), s->type, s->op, s->count, s->inPlace ? ", in place" : "", i, slot, *r->fault);
      exit(1);
    }
    for (size_t i = 0; i < behind * bytes; i++) CHECK(host[got * bytes + i] == 0x5a || host[got * bytes + i] == 0xa5);
  }
  return compared;
}

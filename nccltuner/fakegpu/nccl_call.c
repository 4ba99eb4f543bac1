/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective from the API to its end: the harness asks the tuner and prices what ran, the stream's virtual time
 * advances, and a job of the stream is to move the data (nccl_jobs.c).
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_fake.h"

/* Host work that NCCL puts into a graph when it is captured with KernelCh in the activation mask: AllReduce of 1 KiB
 * then replays at 39-45 us in place of 9.2 (NCCL 2.28.9 and 2.32.3, 4x H200, 2026-11). */
static const double watchedGraphNs = 30000;
static const double untabledNs = 10000; /* AllToAll where the table has no AllGather */

static uint64_t bytes_of(const struct ncclComm *comm, const struct call *call) {
  int whole = call->func == FUNC_ALLREDUCE || call->func == FUNC_BROADCAST || call->func == FUNC_REDUCE;
  return (uint64_t)call->count * nccl_type_bytes(call->type) * (whole ? 1 : (uint64_t)comm->plan->nRanks);
}

/* Costs without load or, if there are others for that, with it. */
static struct phase *phase_of(struct ncclComm *comm) {
  return &comm->plan->phases[comm->plan->numPhases > 1 && fakegpu_is_loaded()];
}

/* The harness's item of this call: made when it comes for the first time. */
static struct item *item_of(struct ncclComm *comm, struct phase *phase, const struct call *call) {
  const char *type = call->type == ncclBfloat16 ? "ncclBfloat16" : "ncclFloat32";
  for (int i = 0; i < phase->numItems; i++) {
    struct item *item = &phase->items[i];
    int same = item->func == call->func && item->userCount == call->count;
    if (same && strcmp(item->userDatatype, type) == 0) return item;
  }
  const char *wrong = plan_add_item(comm->plan, phase, call->func, bytes_of(comm, call), 1);
  if (wrong != NULL) {
    nccl_fail(ncclInternalError, "%s of %llu bytes: %s", table_collective_name(call->func),
              (unsigned long long)bytes_of(comm, call), wrong);
    return NULL;
  }
  struct item *item = &phase->items[phase->numItems - 1];
  int asBytes = call->func == FUNC_ALLGATHER || call->func == FUNC_BROADCAST; /* enqueue.cc:2474 */
  item->bytes = bytes_of(comm, call);
  item->userCount = call->count;
  item->userDatatype = type;
  item->elementSize = asBytes ? 1 : (int)nccl_type_bytes(call->type);
  item->count = asBytes ? call->count * nccl_type_bytes(call->type) : call->count;
  if (!asBytes) item->datatype = type;
  return item;
}

static double load_factor(void) {
  const char *text = getenv("FAKEGPU_LOAD_FACTOR");
  return text != NULL && fakegpu_is_loaded() ? atof(text) : 1;
}

static double registered_factor(void) {
  const char *text = getenv("FAKEGPU_GRAPH_REGISTER");
  return text != NULL && atof(text) > 0 ? atof(text) : 1;
}

/* Virtual time of stream and communicator go together: NCCL's work is what its stream does. */
static void begin_on(struct ncclComm *comm, CUstream stream) {
  double *now = fakegpu_now_ns(stream), *own = &comm->rank.timeline.nowNs;
  if (*now > *own) *own = *now;
}

static void end_on(struct ncclComm *comm, CUstream stream, double moreNs) {
  comm->rank.timeline.nowNs += moreNs;
  *fakegpu_now_ns(stream) = comm->rank.timeline.nowNs;
}

struct captured {
  struct fakegpu_work work;
  struct ncclComm *comm;
  struct launched launched;
};

static void replay(struct fakegpu_work *work, CUstream stream) {
  struct captured *c = (struct captured *)work;
  struct ncclComm *comm = c->comm;
  struct launched launched = c->launched;
  launched.call.stream = stream; /* of this launch: it was captured on another one, perhaps */
  begin_on(comm, stream);
  /* Calls and replays draw from different numbers. */
  uint64_t draw = ++comm->replays | (uint64_t)1 << 40;
  timeline_call(&comm->rank.timeline, &comm->options.model, 0, draw, comm->rank.rank, comm->plan->nRanks, comm->calls,
                bytes_of(comm, &launched.call), launched.costNs);
  end_on(comm, stream, launched.costNs * (load_factor() - 1));
  nccl_give(comm, &launched);
}

static void release(struct fakegpu_work *work) { free(work); }

static ncclResult_t capture(struct ncclComm *comm, const struct launched *launched, int channels) {
  struct captured *c = calloc(1, sizeof *c);
  if (c == NULL) return nccl_fail(ncclSystemError, "out of memory");
  *c = (struct captured){{.run = replay, .release = release, .grid = (unsigned)channels, .block = 512}, comm, *launched};
  fakegpu_capture(launched->call.stream, &c->work);
  return 0;
}

static ncclResult_t check(const struct ncclComm *comm, const struct call *call) {
  if (comm == NULL || call->send == NULL || call->recv == NULL)
    return nccl_fail(ncclInvalidArgument, "a communicator or buffer is NULL");
  if (nccl_type_bytes(call->type) == 0 || (call->op != ncclSum && call->op != ncclMax && call->op != ncclAvg))
    return nccl_fail(ncclInvalidArgument, "the stand-in has bf16 and float32, sum, max and average alone");
  if (call->root < 0 || call->root >= comm->plan->nRanks) return nccl_fail(ncclInvalidArgument, "root %d", call->root);
  return 0;
}

static double all_to_all_ns(struct ncclComm *comm, const struct call *call) {
  const struct table_cell *cell = table_find(&phase_of(comm)->table, FUNC_ALLGATHER, bytes_of(comm, call));
  return cell != NULL && cell->defaultNs > 0 ? cell->defaultNs : untabledNs;
}

ncclResult_t nccl_append(struct ncclComm *comm, const struct call *call, struct appended *out) {
  ncclResult_t result = check(comm, call);
  *out = (struct appended){.call = *call, .as = fakegpu_capturing(call->stream) ? CALL_CAPTURE : CALL_RUN_TIMED};
  out->call.stream = fakegpu_stream(call->stream); /* of the context that is current now: a group may end in another */
  if (result != 0 || call->count == 0 || call->func == FUNC_ALLTOALL) return result;
  out->phase = phase_of(comm);
  out->item = item_of(comm, out->phase, call);
  if (out->item == NULL) return ncclInternalError;
  begin_on(comm, call->stream);
  out->api = comm_append(&comm->comm, &comm->rank, out->item, out->as);
  return 0;
}

/* The device kernels of before 2.30.3 read the last bytes of 8 wrongly from there (loadPack, src/device/op128.h). */
static int misloads(const struct call *call) {
  return nccl_version() < 23003 && nccl_type_bytes(call->type) < 4 && (((uintptr_t)call->send | (uintptr_t)call->recv) & 3) != 0;
}

ncclResult_t nccl_run(struct ncclComm *comm, const struct appended *appended) {
  const struct call *call = &appended->call;
  ncclResult_t result;
  struct launched launched = {.call = *call};
  struct ran ran = {.algo = -1, .proto = -1, .nChannels = 1};
  struct fault_point point = {comm->rank.rank, comm->nth, call->func, -1, -1, comm->calls++, bytes_of(comm, call)};
  int capturing = appended->as == CALL_CAPTURE, faults = nccl_faults(&point, 1);
  if (faults & FAULT_FAIL) return nccl_fail(ncclSystemError, "FAKEGPU_FAULT says that call %llu fails",
                                            (unsigned long long)point.call);
  if (point.call == 0) fakegpu_take_place(); /* for its connections' memory */
  begin_on(comm, call->stream);
  if (call->func == FUNC_ALLTOALL) {
    ran.costNs = all_to_all_ns(comm, call);
    if (!capturing)
      timeline_call(&comm->rank.timeline, &comm->options.model, 0, point.call | (uint64_t)1 << 41, comm->rank.rank,
                    comm->plan->nRanks, point.call, point.bytes, ran.costNs);
  } else {
    if ((result = nccl_select(comm, call, point.bytes, &comm->comm.selected)) != 0) {
      comm->calls--; /* it has not been one */
      return result;
    }
    if (comm_run(&comm->comm, &comm->rank, appended->phase, appended->item, &appended->api, point.call, appended->as, &ran) != 0)
      return nccl_fail(ncclInternalError, "%s", comm->rank.error);
    if (ran.device && call->func == FUNC_ALLREDUCE && call->op == ncclAvg) /* as NCCL 2.30 and later: there is no such kernel */
      return nccl_fail(ncclUnhandledCudaError, "invalid device function");
    if (capturing && (ran.mask & ncclProfileKernelCh)) ran.costNs += watchedGraphNs;
  }
  point.algo = ran.algo;
  point.proto = ran.proto;
  faults |= nccl_faults(&point, 0);
  launched.costNs = ran.costNs * (capturing && nccl_owns(call->send) && nccl_owns(call->recv) ? registered_factor() : 1);
  launched.hangs = (faults & FAULT_HANG) != 0;
  launched.spoils = (faults & FAULT_WRONG) != 0 || (ran.device && misloads(call));
  launched.skips = (faults & FAULT_SKIP) != 0;
  if (capturing) return capture(comm, &launched, ran.nChannels);
  end_on(comm, call->stream, ran.costNs * (load_factor() - 1));
  nccl_give(comm, &launched);
  return 0;
}

ncclResult_t nccl_call(struct ncclComm *comm, const struct call *call) {
  struct appended appended;
  ncclResult_t result = nccl_append(comm, call, &appended);
  return result != 0 || call->count == 0 ? result : nccl_run(comm, &appended);
}

ncclResult_t nccl_collective(struct ncclComm *comm, const struct call *call) {
  return nccl_in_group() ? nccl_group_append(comm, call) : nccl_call(comm, call);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * By a kernel that the host feeds (nic/feed.h), or, where that is not there, driven by the host: a copy by the driver and an event
 * for each transfer, a launch for each signal. There every signal costs what a launch costs, some microseconds, and the kernel
 * needs a free place on a multiprocessor: a program whose kernels fill the whole GPU and wait for a signal waits for ever
 * (docs/design.md, decision 29). One stream each and no more: CUDA has few queues to the GPU (CUDA_DEVICE_MAX_CONNECTIONS),
 * streams beyond them share one, and what shares it with the program's may come to stand behind a kernel that waits for us.
 */
#include "mover.h"

#include <stdlib.h>
#include <time.h>

#include "fault.h"
#include "nic/feed.h"
#include "say.h"

struct move {
  struct move *next;  /* while it is spare */
  struct move *other; /* of all of the mover */
  void *event;
  uint64_t number; /* of a feed's */
};

struct mover {
  struct nic_feed *feed; /* NULL: CUDA moves, by what is below */
  enum mover_kind kind;
  struct carrier_home home;
  void *stream;
  void *module, *add; /* MOVER_ADDS */
  struct move *spare, *all;
};

/* The driver compiles it for its GPU. Release: what this process saw before is seen by who sees the sum. */
#define ADD_NAME "dynamicclCarrierAdd"
static const char addText[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry " ADD_NAME "(.param .u64 at, .param .u64 value)\n"
    "{\n"
    ".reg .b64 %a, %v;\n"
    "ld.param.u64 %a, [at];\n"
    "ld.param.u64 %v, [value];\n"
    "cvta.to.global.u64 %a, %a;\n"
    "red.release.sys.global.add.u64 [%a], %v;\n"
    "ret;\n"
    "}\n";

static bool build(struct mover *m, enum mover_kind kind) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  int least, greatest;
  if (!carrier_home_here(&m->home) || carrier_failed(cuda->cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange") ||
      carrier_failed(cuda->cuStreamCreateWithPriority(&m->stream, CARRIER_STREAM_NON_BLOCKING, greatest), "cuStreamCreateWithPriority"))
    return false;
  /* All of it now: CUDA may wait for the GPU when it loads a function, whose kernels may by then be waiting for a signal. */
  return kind == MOVER_PUTS ||
         !(carrier_failed(cuda->cuModuleLoadData(&m->module, addText), "loading the kernel that adds to signals (no compiler in the driver?)") ||
           carrier_failed(cuda->cuModuleGetFunction(&m->add, m->module, ADD_NAME), "cuModuleGetFunction") || carrier_failed(cuda->cuFuncLoad(m->add), "cuFuncLoad"));
}

struct mover *mover_make(enum mover_kind kind, struct nic_feed *feed) {
  struct mover *m = calloc(1, sizeof *m);
  if (m != NULL) m->feed = feed, m->kind = kind;
  if (m == NULL || feed != NULL || build(m, kind)) return m;
  mover_free(m);
  return NULL;
}

static struct move *take(struct mover *m) {
  struct move *move = m->spare;
  if (move != NULL) {
    m->spare = move->next;
    return move;
  }
  move = calloc(1, sizeof *move);
  if (move == NULL || (m->feed == NULL && carrier_failed(carrier_driver(NULL)->cuEventCreate(&move->event, CARRIER_EVENT_DISABLE_TIMING), "cuEventCreate"))) {
    free(move);
    return NULL;
  }
  move->other = m->all;
  m->all = move;
  return move;
}

static void give(struct mover *m, struct move *move) {
  move->next = m->spare;
  m->spare = move;
}

bool mover_has_room(struct mover *m, size_t bytes, bool host) {
  return m->feed == NULL || nic_feed_has_room(m->feed, m->kind == MOVER_PUTS ? NIC_MAIN : NIC_SIDE, bytes, host);
}

static struct move *feed(struct mover *m, carrier_address to, uint64_t from, size_t bytes, bool host) {
  struct move *move = nic_feed_done(m->feed, NIC_MAIN, 0) < 0 ? NULL : take(m);
  if (move != NULL) move->number = nic_feed_copy(m->feed, to, from, bytes, host);
  return move;
}

struct move *mover_put(struct mover *m, carrier_address to, uint64_t from, size_t bytes, bool host) {
  if (m->feed != NULL) return feed(m, to, from, bytes, host);
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  if (!carrier_enter(&m->home, &entered)) return NULL;
  struct move *move = take(m);
  int copied = move == NULL ? 0
               : host       ? cuda->cuMemcpyHtoDAsync_v2(to, (const void *)(uintptr_t)from, bytes, m->stream)
                            : cuda->cuMemcpyDtoDAsync_v2(to, from, bytes, m->stream);
  if (move != NULL && (carrier_failed(copied, "a copy") || carrier_failed(cuda->cuEventRecord(move->event, m->stream), "cuEventRecord"))) {
    give(m, move);
    move = NULL;
  }
  carrier_leave(&entered);
  return move;
}

static int fed(struct mover *m, struct move *move) {
  const int state = nic_feed_done(m->feed, NIC_MAIN, move->number);
  if (state != 0) give(m, move);
  return state;
}

int mover_done(struct mover *m, struct move *move) {
  if (m->feed != NULL) return fed(m, move);
  struct carrier_entered entered;
  if (!carrier_enter(&m->home, &entered)) return -1;
  int state = carrier_driver(NULL)->cuEventQuery(move->event);
  carrier_leave(&entered);
  if (state == CARRIER_NOT_READY) return 0;
  give(m, move);
  return carrier_failed(state, "a copy") ? -1 : 1;
}

bool mover_add(struct mover *m, carrier_address at, uint64_t value) {
  struct carrier_entered entered;
  void *arguments[] = {&at, &value};
  if (m->feed != NULL) return nic_feed_done(m->feed, NIC_SIDE, 0) > 0 && nic_feed_add(m->feed, at, value) > 0;
  if (!carrier_enter(&m->home, &entered)) return false;
  int launched = carrier_driver(NULL)->cuLaunchKernel(m->add, 1, 1, 1, 1, 1, 1, 0, m->stream, arguments, NULL);
  carrier_leave(&entered);
  return !carrier_failed(launched, "the kernel that adds to signals");
}

bool mover_settle(struct mover *m, uint64_t deadlineNs) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  void *behind = NULL;
  if (m->feed != NULL) return nic_feed_settle(m->feed, deadlineNs);
  if (!carrier_enter(&m->home, &entered)) return true; /* all that ran there went with it */
  int state = cuda->cuEventCreate(&behind, CARRIER_EVENT_DISABLE_TIMING);
  if (state == 0) state = cuda->cuEventRecord(behind, m->stream);
  while (state == 0 && (state = cuda->cuEventQuery(behind)) == CARRIER_NOT_READY && carrier_now_ns() < deadlineNs) {
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    state = 0;
  }
  if (behind != NULL) cuda->cuEventDestroy_v2(behind);
  carrier_leave(&entered);
  return state != CARRIER_NOT_READY; /* with another error nothing runs there any more */
}

void mover_free(struct mover *m) {
  struct carrier_entered entered;
  if (m == NULL) return;
  bool in = m->stream != NULL && carrier_enter(&m->home, &entered);
  if (in) {
    carrier_driver(NULL)->cuStreamSynchronize(m->stream);
    carrier_driver(NULL)->cuStreamDestroy_v2(m->stream);
  }
  if (in && m->module != NULL) carrier_driver(NULL)->cuModuleUnload(m->module);
  for (struct move *move = m->all, *next; move != NULL; move = next) {
    next = move->other;
    if (in) carrier_driver(NULL)->cuEventDestroy_v2(move->event);
    free(move);
  }
  if (in) carrier_leave(&entered);
  free(m);
}

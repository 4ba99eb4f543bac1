/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_stamps FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * What samples of timed calls say of the send buffer: of calls that our kernels run, in rank processes, by the kernels' own stamps;
 * of NCCL's when they are over.
 */
#include "lsa_ring.h"

static unsigned held, slow; /* of these, with times, and of calls that kept a busy machine's host too long */

/* The next sample, of which the ring has every one. NULL: it has no times. */
static const struct dyn_sample *await(void) {
  const struct dyn_sample *s = next_sample();
  bool untimed = s->flags == (DYN_SAMPLE_EVENT_TIMED | DYN_SAMPLE_UNTIMED);
  CHECK(untimed ? s->signalNs + s->counterNs == 0 : s->flags == DYN_SAMPLE_EVENT_TIMED, "flags %x", s->flags);
  slow += untimed, held += !untimed;
  return untimed ? NULL : s;
}
static void most_held(void) { CHECK(slow < held / 2, "%u of %u calls were too slow for times", slow, slow + held); }

static void times(int kernelUs, int sentUs) {
  char text[16];
  snprintf(text, sizeof text, "%d", kernelUs);
  setenv("FAKEGPU_KERNEL_US", text, 1);
  snprintf(text, sizeof text, "%d", sentUs);
  setenv("FAKEGPU_KERNEL_SENT_US", text, 1);
  setenv("FAKEGPU_KERNEL_GBS", "1e9", 1);
}

static const uint32_t kernels[] = {LSA(0, 1), LSA(1, 3), LSA(2, 2)}; /* one shot, two shots, bulk */

static void make_timed(unsigned n, bool inGroup) {
  struct step s = {.collective = ALL_REDUCE, .count = 100 + n, .stream = streams[0], .action = kernels[n % 3], .seed = n};
  fill(&s, 0);
  meet();
  if (inGroup) group_start();
  planned = s.action;
  CHECK(issue(&s, 0, COMM) == 0);
  if (inGroup) group_end();
  wait_for_all();
  compare(&s, 0, true);
}

static void hold(const struct dyn_sample *s, int signalUs, int counterUs) {
  if (s == NULL) return;
  CHECK(s->seq == asked, "call %lu of %u", s->seq, asked);
  int64_t signal = (int64_t)s->signalNs - 1000 * signalUs, counter = (int64_t)s->counterNs - 1000 * counterUs;
  CHECK(signal >= -2 && signal <= 2 && counter >= -2 && counter <= 2, "call %u: %u ns and %u, of %d and %d us", asked, s->counterNs, s->signalNs, counterUs, signalUs);
}

/* All that is longer on the other side shows in the signal alone, and what is longer here in both. */
static void told(void) {
  static const int us[][2] = {{20, 3}, {40, 3}, {40, 23}, {20, 20}, {20, 3}};
  begin();
  open_ring();
  know(streams[0]);
  for (unsigned n = 0; n < 60; n++) {
    times(us[n / 12][0], us[n / 12][1]);
    time_calls(true);
    make_timed(n, false);
    hold(await(), us[n / 12][0], us[n / 12][1]);
    time_calls(false);
    make_timed(n, n % 2);
  }
  CHECK(__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == taken, "samples of calls that nobody times");
  most_held();
}

/* What is not described, and what NCCL runs, has no stamp: an earlier call's is none of theirs. The stream waits for another one
 * meanwhile, so that it takes long. */
static CUevent far;
static int nccls(void) {
  int (*wait)(CUstream, CUevent, unsigned) = (int (*)(CUstream, CUevent, unsigned))dlsym(dlopen(driverPath, RTLD_NOW), "cuStreamWaitEvent");
  describe(0);
  return wait(streams[0], far, 0);
}
static void others(void) {
  begin();
  open_ring();
  know(streams[0]);
  struct step s = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0]}, ahead = {.collective = ALL_REDUCE, .count = 10, .stream = streams[1], .action = LSA(0, 1)};
  CHECK(cuda.cuEventCreate(&far, 0) == 0);
  for (unsigned n = 0; n < 12; n++) {
    times(20, 3);
    time_calls(true);
    make_timed(n, false);
    hold(await(), 20, 3);
    sampled = false; /* its window is over */
    make_timed(n, false);
    time_calls(false);
    times(1000, 3);
    make_call(&ahead, 1, 0);
    CHECK(cuda.cuEventRecord(far, streams[1]) == 0);
    time_calls(true);
    planned = 0;
    fake->inside = nccls;
    CHECK(issue(&s, 0, COMM) == 0);
    fake->inside = succeed;
    wait_for_all();
    const struct dyn_sample *of = await();
    CHECK(of == NULL || of->action == 0);
    if (of != NULL) CHECK(of->signalNs / 1000 == 1000 && of->counterNs == of->signalNs, "%u ns and %u", of->counterNs, of->signalNs);
  }
}

/* More calls than there are places, as many in flight as there can be: each is told its own times, in time or not at all. */
static void many(void) {
  begin();
  open_ring();
  know(streams[0]);
  uint64_t made = 0;
  for (int lap = 0; lap < 4; lap++) {
    unsigned first = asked;
    time_calls(true);
    for (unsigned n = 0; n < 400; n++, made++) {
      struct step s = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0], .action = kernels[n % 3]};
      times(20 + (int)n, 3 + (int)n % 7);
      planned = s.action;
      CHECK(issue(&s, 0, COMM) == 0);
    }
    wait_for_all();
    for (unsigned n = 0; n < 400; n++) {
      const struct dyn_sample *s = await();
      if (s == NULL) continue;
      int at = (int)(s->seq - first - 1);
      CHECK(at == (int)n && s->signalNs / 1000 == 20u + n && s->counterNs / 1000 == 3u + n % 7, "call %d: %u ns and %u", at, s->counterNs, s->signalNs);
    }
    time_calls(false);
    meet();
    if (lap % 2 == 0) continue; /* the memory goes on to another communicator */
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    preload->device->close(lsa);
    meet();
    make();
    asked = 0;
    bind_lsa();
  }
  most_held();
}

/* A graph of the same kernels goes on meanwhile: its stamps are of nobody's call. */
static void beside_graphs(void) {
  begin();
  open_ring();
  know(streams[0]);
  struct step steps[NODES] = {{.collective = ALL_REDUCE, .count = 29, .stream = streams[0], .action = LSA(1, 3)},
                              {.collective = ALL_GATHER, .count = 90, .stream = streams[0], .action = LSA(0, 2)}};
  CUgraphExec graph = capture(steps, 1);
  for (unsigned n = 0; n < 100; n++) {
    times(20, 3 + (int)n % 5);
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    time_calls(true);
    make_timed(3 * n + 1, false);
    const struct dyn_sample *s = await();
    if (s != NULL) CHECK(s->counterNs / 1000 == 3u + n % 5, "call %u: %u ns", n, s->counterNs);
    time_calls(false);
  }
}

int main(int argc, char **argv) {
  char kernelsFile[4096];
  begin_program(argc, argv, kernelsFile);
  play("told", 3, told);
  play("others", 2, others);
  play("many", 2, many);
  play("beside graphs", 2, beside_graphs);
  unlink(kernelsFile);
  return 0;
}

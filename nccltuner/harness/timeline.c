/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

static const char *const kinds[] = {"remote-side", "slow-rank", "backend-fallback", "congestion", "cpu-contention",
                                    "counter"};

const char *timeline_parse_fault(const char *text, struct fault *fault) {
  char name[32];
  size_t length = strcspn(text, "=:");
  if (length >= sizeof name) return "unknown kind";
  memcpy(name, text, length);
  name[length] = '\0';
  *fault = (struct fault){.rank = -1, .to = UINT64_MAX};
  int kind = -1;
  for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
    if (strcmp(name, kinds[i]) == 0) kind = i;
  if (kind < 0)
    return "unknown kind: want remote-side, slow-rank, backend-fallback, congestion, cpu-contention, counter";
  fault->kind = (enum fault_kind)kind;
  const char *p = text + length;
  char *end;
  if (*p == '=') {
    fault->rank = (int)strtol(p + 1, &end, 10);
    if (end == p + 1 || fault->rank < 0) return "want a rank after =";
    p = end;
  }
  if ((fault->kind == FAULT_SLOW_RANK) != (fault->rank >= 0)) return "slow-rank, and it alone, needs =RANK";
  if (*p != ':') return "want :US after the kind";
  fault->us = strtod(p + 1, &end);
  if (end == p + 1 || !(fault->us > 0) || fault->us > 1e9) return "want microseconds above 0 after :";
  p = end;
  if (*p == '@') {
    fault->from = strtoull(p + 1, &end, 10);
    if (end == p + 1) return "want a call number after @";
    p = end;
    if (*p == '-') {
      fault->to = strtoull(p + 1, &end, 10);
      if (end == p + 1 || fault->to <= fault->from) return "want a later call number after -";
      p = end;
    }
  }
  return *p == '\0' ? NULL : "trailing characters";
}

void timeline_init(struct timeline *timeline, const struct timeline_model *model, int rank) {
  timeline->nowNs = 1e9; /* never 0: a timer of 0 means not measured */
  timeline->gpuBase = rng_draw(model->seed, RNG_CLOCK, 0, 0, (uint64_t)rank) % 1000000000000u;
}

/* How much later than the earliest possible time a rank arrives. */
static double arrival(const struct timeline_model *model, uint64_t comm, uint64_t seq, int rank, uint64_t call) {
  double us = model->skewUs * rng_exponential(rng_draw(model->seed, RNG_SKEW, comm, seq, (uint64_t)rank));
  if (model->lateShare > 0) {
    uint64_t draw = rng_draw(model->seed, RNG_LATE, comm, seq, (uint64_t)rank);
    if (rng_unit(draw) < model->lateShare) us += model->lateUs * rng_exponential(rng_mix(draw));
  }
  for (int i = 0; i < model->numFaults; i++) {
    const struct fault *f = &model->faults[i];
    if (f->kind == FAULT_SLOW_RANK && f->rank == rank && call >= f->from && call < f->to) us += f->us;
  }
  return us * 1000;
}

static double noise(const struct timeline_model *model, uint64_t comm, uint64_t seq) {
  double factor = 1;
  if (model->noise > 0) factor = exp(model->noise * rng_normal(rng_draw(model->seed, RNG_COST, comm, seq, 0)));
  if (model->tailShare > 0) {
    uint64_t draw = rng_draw(model->seed, RNG_TAIL, comm, seq, 0);
    if (rng_unit(draw) < model->tailShare) factor *= 1 + model->tailScale * rng_exponential(rng_mix(draw));
  }
  return factor;
}

struct timing timeline_call(struct timeline *timeline, const struct timeline_model *model, int comm, uint64_t seq,
                            int rank, int nRanks, uint64_t call, uint64_t bytes, double costNs) {
  double own = 0, last = 0;
  for (int r = 0; r < nRanks; r++) {
    double at = arrival(model, (uint64_t)comm, seq, r, call);
    if (r == rank) own = at;
    if (at > last) last = at;
  }
  double signal = costNs * noise(model, (uint64_t)comm, seq), counter = signal * model->counterFrac;
  for (int i = 0; i < model->numFaults; i++) {
    const struct fault *f = &model->faults[i];
    if (call < f->from || call >= f->to) continue;
    double ns = f->us * 1000;
    switch (f->kind) {
      case FAULT_REMOTE_SIDE: signal += ns; break;
      case FAULT_COUNTER: counter = fmin(counter + ns, signal); break;
      case FAULT_CONGESTION: ns *= (double)bytes / (1 << 20); signal += ns; counter += ns; break;
      case FAULT_CPU_CONTENTION:
        ns *= (double)(rng_draw(model->seed, RNG_FAULT, (uint64_t)comm, seq, (uint64_t)i) % 5);
        signal += ns;
        counter += ns;
        break;
      case FAULT_BACKEND_FALLBACK: signal += ns; counter += ns; break;
      case FAULT_SLOW_RANK: break; /* in the arrivals */
    }
  }
  double start = timeline->nowNs;
  timeline->nowNs = start + last + signal + model->gapUs * 1000;
  return (struct timing){(uint64_t)(start + own), (uint64_t)(start + last + signal),
                         (uint64_t)(start + last + counter)};
}

void timeline_skip(struct timeline *timeline, const struct timeline_model *model, double costNs) {
  timeline->nowNs += costNs + model->gapUs * 1000;
}

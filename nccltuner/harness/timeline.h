/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual time. A rank's kernel starts when the rank arrives and ends when the group ends:
 *   group end    = latest arrival over ranks + cost of the choice x noise + faults
 *   counter end  = latest arrival over ranks + counter-frac x cost x noise + faults that delay sends
 * Arrivals and noise are hashes of (seed, communicator, call, rank), so all ranks compute the same group end.
 */
#ifndef HARNESS_TIMELINE_H
#define HARNESS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#define MAX_FAULTS 16

enum fault_kind {
  FAULT_REMOTE_SIDE,      /* signal + US: the receiver is slow, sends are not */
  FAULT_SLOW_RANK,        /* one rank arrives US late, every call */
  FAULT_BACKEND_FALLBACK, /* counter and signal + US, whatever the size */
  FAULT_CONGESTION,       /* counter and signal + US for each MiB */
  FAULT_CPU_CONTENTION,   /* both + a random number (0 to 4) of scheduler quanta of US */
  FAULT_COUNTER,          /* counter + US alone, never above the signal: local completion got slower */
};

struct fault {
  enum fault_kind kind;
  int rank; /* FAULT_SLOW_RANK */
  double us;
  uint64_t from, to; /* calls of the run, [from, to) */
};

struct timeline_model {
  uint64_t seed;
  double noise;               /* sigma of the lognormal factor on the cost */
  double tailShare, tailScale; /* with this probability the factor grows by an exponential number of this mean */
  double skewUs;              /* mean of the exponential difference of arrival */
  double lateShare, lateUs;   /* with this probability a rank arrives late by an exponential time of this mean */
  double gapUs;               /* computing between two calls */
  double counterFrac;
  int numFaults;
  struct fault faults[MAX_FAULTS];
};

struct timeline { /* of one rank */
  double nowNs;     /* when the slowest rank could arrive at the next call, if it were not late */
  uint64_t gpuBase; /* offset of this rank's globaltimer: clocks of different GPUs do not agree */
};

struct timing { /* one call on one rank, virtual ns */
  uint64_t arrivalNs, signalEndNs, counterEndNs;
};

/* KIND[=RANK]:US[@FROM[-TO]]; NULL, or what is wrong. */
const char *timeline_parse_fault(const char *text, struct fault *fault);
void timeline_init(struct timeline *timeline, const struct timeline_model *model, int rank);
/* Times of a call that costs costNs; the timeline advances. */
struct timing timeline_call(struct timeline *timeline, const struct timeline_model *model, int comm, uint64_t seq,
                            int rank, int nRanks, uint64_t call, uint64_t bytes, double costNs);
/* The same advance without drawing anything, for calls that nobody observes. */
void timeline_skip(struct timeline *timeline, const struct timeline_model *model, double costNs);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: a number is a hash of (seed, what it is for, communicator, call, rank) and of nothing
 * else. Every rank can therefore compute what every other rank draws, in any order, without talking to it.
 */
#ifndef HARNESS_RNG_H
#define HARNESS_RNG_H

#include <math.h>
#include <stdint.h>

enum rng_stream {
  RNG_WORK = 1,  /* which collective and size a call is */
  RNG_COST,      /* noise of the group's cost */
  RNG_TAIL,      /* whether the call falls into the heavy tail, and how far */
  RNG_SKEW,      /* everyday difference of arrival between ranks */
  RNG_LATE,      /* rare late arrival of one rank */
  RNG_CHANNEL,   /* order and spread of the channels' ends */
  RNG_REGBUFF,   /* whether this rank's buffers are registered */
  RNG_STALL,     /* stalls of this rank around getCollInfo */
  RNG_COMM_ID,   /* communicator ids */
  RNG_GROUP,     /* whether a call is a group of several collectives */
  RNG_FAULT,     /* faults that are random themselves */
  RNG_CLOCK,     /* offset of a GPU's globaltimer */
};

/* Output function of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). */
static inline uint64_t rng_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline uint64_t rng_draw(uint64_t seed, enum rng_stream stream, uint64_t comm, uint64_t call, uint64_t rank) {
  uint64_t x = rng_mix(seed ^ ((uint64_t)stream << 56));
  x = rng_mix(x ^ comm);
  x = rng_mix(x ^ call);
  return rng_mix(x ^ rank);
}

/* In (0, 1): never 0, so that its logarithm is finite. */
static inline double rng_unit(uint64_t draw) { return ((double)(draw >> 11) + 0.5) * 0x1p-53; }

static inline double rng_exponential(uint64_t draw) { return -log(rng_unit(draw)); }

/* Box-Muller; the second uniform is a hash of the first draw. */
static inline double rng_normal(uint64_t draw) {
  return sqrt(2 * rng_exponential(draw)) * cos(6.283185307179586 * rng_unit(rng_mix(draw)));
}

#endif

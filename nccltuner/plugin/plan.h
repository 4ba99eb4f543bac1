/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a plan fit to be run. The content of a plan buffer is the same for every rank, so every rank comes to the
 * same verdict: a plan that fails here is "NCCL's defaults" on all of them.
 *
 * dyn_plan_checksum, so that the daemon can compute the same number:
 *   h = 0
 *   for each little-endian 64-bit word w of the plan after the field checksum (sizeof(struct dyn_plan) / 8 - 2 words):
 *     h = (h XOR w) * 0x9E3779B97F4A7C15   (modulo 2^64)
 *     h = h XOR (h >> 32)
 *   checksum = h XOR version
 * The version is mixed in last: content of one plan under the version of another does not pass.
 */
#ifndef DYN_PLAN_H
#define DYN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../abi.h"

#define DYN_MAX_CHANNELS 64 /* MAXCHANNELS, NCCL src/include/device.h: a larger number cannot be meant */

static inline uint64_t dyn_plan_checksum(const struct dyn_plan *plan) {
  const unsigned char *words = (const unsigned char *)plan + offsetof(struct dyn_plan, numEntries);
  uint64_t h = 0;
  for (size_t i = 0; i < (sizeof *plan - offsetof(struct dyn_plan, numEntries)) / 8; i++) {
    uint64_t word;
    memcpy(&word, words + 8 * i, 8);
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return h ^ plan->version;
}

/* Every index that the hot path follows stays inside its array. Actions need no check here: one that this NCCL does not
 * know is refused call by call. */
static inline bool dyn_plan_valid(const struct dyn_plan *plan) {
  _Static_assert(DYN_NUM_ENTRIES == 64 && sizeof plan->index % 8 == 0, "the two upper bits tell");
  uint64_t indexes = 0;
  bool fit = plan->numEntries <= DYN_NUM_ENTRIES && !(plan->sampleEvery & (plan->sampleEvery - 1));
  for (size_t i = 0; i < sizeof plan->index; i += 8) { /* eight at a time: a rank waits for this inside getCollInfo */
    uint64_t eight;
    memcpy(&eight, (const unsigned char *)plan->index + i, 8);
    indexes |= eight;
  }
  for (int i = 0; i < DYN_NUM_ENTRIES; i++) fit &= plan->entries[i].numTrials <= DYN_NUM_TRIALS;
  return fit && !(indexes & 0xc0c0c0c0c0c0c0c0u) && plan->checksum == dyn_plan_checksum(plan);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a plan fit to be run. The content of a plan buffer is the same for every rank, so every rank comes to the
 * same verdict: a plan that fails here is "NCCL's defaults" on all of them.
 *
 * dyn_plan_checksum, so that the daemon can compute the same number. Words are the little-endian 64-bit words of the plan
 * after the field checksum: sizeof(struct dyn_plan) / 8 - 2 of them, word i in lane i mod 8. Additions and products are
 * modulo 2^64.
 *   for each word w, i counting from 0:   sum[i mod 8] += w; then sums[i mod 8] += sum[i mod 8]
 *   h = 0
 *   for lane k = 0 to 7:                  h = (h XOR sum[k]) * 0x9E3779B97F4A7C15
 *                                         h = (h XOR sums[k]) * 0x9E3779B97F4A7C15
 *                                         h = h XOR (h >> 32)
 *   checksum = h XOR version
 * Sums of sums (Fletcher) tell where a word stands, lanes keep them short: a rank takes over a plan inside getCollInfo, and
 * a product for every word would make that call three times as long. The version is mixed in last: content of one plan
 * under the version of another does not pass.
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
  const size_t numWords = (sizeof *plan - offsetof(struct dyn_plan, numEntries)) / 8;
  uint64_t sum[8] = {0}, sums[8] = {0}, lane[8], h = 0;
  for (size_t i = 0; i < numWords; i += 8) {
    memset(lane, 0, sizeof lane);
    memcpy(lane, words + 8 * i, numWords - i < 8 ? 8 * (numWords - i) : sizeof lane);
    /* Lanes past the last word are left as they are: it has no successor. */
    for (size_t k = 0; k < 8 && i + k < numWords; k++) {
      sum[k] += lane[k];
      sums[k] += sum[k];
    }
  }
  return h ^ plan->version;
}

/* Every index that the hot path follows stays inside its array. Actions need no check here: one that this NCCL does not
 * know is refused call by call. */
static inline bool dyn_plan_valid(const struct dyn_plan *plan) {
  if (plan->checksum != dyn_plan_checksum(plan)) return false;
  if (plan->numEntries > DYN_NUM_ENTRIES) return false;
  if (plan->sampleEvery & (plan->sampleEvery - 1)) return false;
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++)
      if (plan->index[c][b] >= DYN_NUM_ENTRIES) return false;
  for (int i = 0; i < DYN_NUM_ENTRIES; i++)
    if (plan->entries[i].numTrials > DYN_NUM_TRIALS) return false;
  return true;
}

#endif

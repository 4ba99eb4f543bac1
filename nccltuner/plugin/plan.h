/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a plan fit to be run. The content of a plan buffer is the same for every rank, so every rank comes to the
 * same verdict: a plan that fails here is "NCCL's defaults" on all of them.
 *
 * dyn_plan_checksum, so that the daemon can compute the same number. Words are the little-endian 64-bit words of the
 * plan after the field checksum: sizeof(struct dyn_plan) / 8 - 2 of them, word i in lane i mod 8. Additions and
 * products are modulo 2^64.
 *   for each word w, i counting from 0:   sum[i mod 8] += w; then sums[i mod 8] += sum[i mod 8]
 *   h = 0
 *   for lane k = 0 to 7:                  h = (h XOR sum[k]) * 0x9E3779B97F4A7C15
 *                                         h = (h XOR sums[k]) * 0x9E3779B97F4A7C15
 *                                         h = h XOR (h >> 32)
 *   checksum = h XOR version
 * Sums of sums (Fletcher) tell where a word stands, lanes keep them short: a rank takes over a plan inside getCollInfo,
 * and a product for every word would make that call four times as long. The version is mixed in last: content of one
 * plan under the version of another does not pass.
 */
#ifndef DYN_PLAN_H
#define DYN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../abi.h"

#define DYN_MAX_CHANNELS 64 /* MAXCHANNELS, NCCL src/include/device.h: a larger number cannot be meant */

/* Two lanes, as many as a vector register of every 64-bit processor holds. */
typedef uint64_t dyn_lanes __attribute__((vector_size(16), aligned(8), may_alias));

static inline uint64_t dyn_plan_checksum(const struct dyn_plan *plan) {
  const size_t from = offsetof(struct dyn_plan, numEntries), numWords = (sizeof *plan - from) / 8;
  const unsigned char *words = (const unsigned char *)plan + from;
  dyn_lanes a = {0}, b = {0}, c = {0}, d = {0}, as = {0}, bs = {0}, cs = {0}, ds = {0};
  size_t i = 0;
  for (; i + 8 <= numWords; i += 8) {
    const dyn_lanes *eight = (const dyn_lanes *)(words + 8 * i);
    as += a += eight[0];
    bs += b += eight[1];
    cs += c += eight[2];
    ds += d += eight[3];
  }
  uint64_t sum[8] = {a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]};
  uint64_t sums[8] = {as[0], as[1], bs[0], bs[1], cs[0], cs[1], ds[0], ds[1]};
  for (int k = 0; i < numWords; i++, k++) {
    uint64_t word;
    memcpy(&word, words + 8 * i, 8);
    sum[k] += word;
    sums[k] += sum[k];
  }
  uint64_t h = 0;
  for (int k = 0; k < 8; k++) {
    h = (h ^ sum[k]) * 0x9E3779B97F4A7C15u;
    h = (h ^ sums[k]) * 0x9E3779B97F4A7C15u;
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
  for (int i = 0; i < DYN_NUM_ENTRIES; i++) fit &= plan->entries[i].numTrials <= DYN_NUM_TRIALS && plan->entries[i].skip <= DYN_MAX_SKIP;
  return fit && !(indexes & 0xc0c0c0c0c0c0c0c0u) && plan->checksum == dyn_plan_checksum(plan);
}

/* Of each `every` epochs, a power of two, one is sampled, the same on all ranks. Were it always the first, a program whose step
 * has as many calls as so many epochs, or a part or a multiple, would show the same few calls for ever: with 24 sizes in turn
 * the daemon saw one of them twice in 30 s (2x H200). Nor does it go on by steps: by those of the golden ratio, which are but two, of
 * 100 samples of a step of 651 calls 92 came from one sixth of it, with one epoch of 128. So it is drawn, by the turn. */
static inline bool dyn_epoch_sampled(uint64_t epoch, uint32_t every) {
  if (every == 0) return false;
  uint32_t turn = (uint32_t)(epoch / every) + 1;
  turn = (turn ^ turn >> 16) * 0x7feb352du;
  turn = (turn ^ turn >> 15) * 0x846ca68bu;
  return (epoch & (every - 1)) == ((uint64_t)(turn ^ turn >> 16) * every >> 32);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which epochs are sampled: part of test_choose.c.
 */
#ifndef DYN_SAMPLED_EPOCHS_H
#define DYN_SAMPLED_EPOCHS_H

/* Whatever number of epochs a program's step has, every part of it is sampled, and none much more than others. */
static void every_part_of_a_step(void) {
  static const uint32_t steps[] = {1, 2, 3, 5, 6, 8, 12, 16, 24, 64, 96, 100, 128, 255, 256};
  for (uint32_t every = 1; every <= 512; every *= 2)
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
      uint32_t step = steps[i], seen[256] = {0}, most = 0, least = UINT32_MAX;
      uint64_t begin = 7 * (uint64_t)every, end = begin + 16 * (uint64_t)step * every;
      uint32_t inBlock = 0;
      for (uint64_t epoch = begin; epoch < end; epoch++) {
        bool sampled = dyn_epoch_sampled(epoch, every);
        inBlock += sampled, seen[epoch % step] += sampled;
        if (epoch % every != every - 1) continue;
        check(inBlock == 1, "%u of the %u epochs to %lu are sampled", inBlock, every, epoch);
        inBlock = 0;
      }
      for (uint32_t part = 0; part < step; part++) {
        if (seen[part] > most) most = seen[part];
        if (seen[part] < least) least = seen[part];
      }
      check(least >= 2 && most <= 40, "step of %u epochs, one of %u sampled: parts were seen %u to %u times, 16 each on average", step, every, least, most);
    }
}

/* Nor is a step whose calls are no whole epochs in tune with it: all six parts of each are seen, in 100 samples. */
static void every_part_of_any_step(void) {
  for (uint32_t every = 128; every <= 512; every *= 2)
    for (uint32_t calls = 12 * DYN_EPOCH_CALLS; calls <= 1000; calls++) {
      uint32_t seen[6] = {0}, most = 0, least = 100;
      for (uint64_t turn = 7; turn < 107; turn++)
        for (uint64_t epoch = turn * every; epoch < (turn + 1) * every; epoch++)
          if (dyn_epoch_sampled(epoch, every)) seen[epoch * DYN_EPOCH_CALLS % calls * 6 / calls]++;
      for (int part = 0; part < 6; part++) {
        if (seen[part] > most) most = seen[part];
        if (seen[part] < least) least = seen[part];
      }
      check(least >= 1 && most <= 44, "step of %u calls, one of %u epochs sampled: its sixths were seen %u to %u times", calls, every, least, most);
    }
}

#endif

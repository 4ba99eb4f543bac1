/* SPDX-License-Identifier: Apache-2.0
 *
 * How many channels a collective really runs on: scheduleCollTasksToPlan, src/enqueue.cc:519-640 of 2.28.9. A tuner
 * asks for a number of channels; NCCL gives a channel no less than 16 KiB of traffic, so small calls run on fewer, and
 * tasks of one group fill the channels one after another.
 */
#include "tuning.h"

static size_t div_up(size_t a, size_t b) { return (a + b - 1) / b; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static const size_t minTrafficPerChannel = 16 << 10;

/* ncclFuncTrafficPerByte, enqueue.cc:86; a factor of four more for LL, enqueue.cc:419. */
static size_t traffic_per_byte(int func, int proto, int nRanks) {
  size_t n = func == FUNC_ALLREDUCE ? 2 : func == FUNC_ALLGATHER || func == FUNC_REDUCESCATTER ? (size_t)nRanks : 1;
  return proto == PROTO_LL ? 4 * n : n;
}

void tuning_schedule(const struct tuning *t, int func, int proto, struct tuning_task *tasks, int numTasks) {
  size_t perByte = traffic_per_byte(func, proto, t->nRanks);
  size_t planTraffic = 0, planChannels = 0;
  for (int i = 0; i < numTasks; i++) {
    planTraffic += larger(minTrafficPerChannel, tasks[i].count * (size_t)tasks[i].elementSize * perByte);
    planChannels = smaller(planChannels + (size_t)tasks[i].nMaxChannels, (size_t)t->nChannels);
  }
  size_t perChannel = larger(minTrafficPerChannel, planTraffic / planChannels);
  size_t channel = 0, used = 0; /* the channel being filled, and its traffic so far */
  size_t last = (size_t)t->nChannels - 1;
  for (int i = 0; i < numTasks; i++) {
    struct tuning_task *task = &tasks[i];
    size_t elementSize = (size_t)task->elementSize;
    size_t cellSize = div_up(div_up(minTrafficPerChannel, perByte), 16) * 16;
    size_t cellTraffic = cellSize * perByte;
    size_t cells = div_up(task->count * elementSize, cellSize);
    size_t full = smaller(cells, div_up(perChannel, cellTraffic));
    size_t low = channel == last ? cells : smaller(cells, div_up(perChannel - used, cellTraffic));
    size_t middle = (cells - low) / full, high = (cells - low) % full;
    if (channel + (low != 0) + middle + (high != 0) > last + 1) {
      middle = last + 1 - channel - 2;
      full = (cells - low) / (middle + 1);
      high = full + (cells - low) % (middle + 1);
    }
    if (high == 0 && middle != 0) {
      high = full;
      middle--;
    }
    if (low == 0) {
      channel++;
      if (middle == 0) {
        low = high;
        high = 0;
      } else {
        low = full;
        middle--;
      }
    }
    task->nChannels = (int)((low != 0) + middle + (high != 0));
    task->channelLo = (int)channel;
    if (high != 0) {
      channel += (size_t)task->nChannels - 1;
      used = high * cellTraffic;
    } else if (middle != 0) {
      channel += (size_t)task->nChannels;
      used = 0;
    } else {
      used += low * cellTraffic;
    }
    if (used >= perChannel && channel != last) {
      channel++;
      used = 0;
    }
  }
}

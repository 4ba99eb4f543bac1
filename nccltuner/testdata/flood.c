/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the ring of this process as fast as the shipped producer can, for the figure of the sample path.
 * flood SAMPLES: says "PID START" once the ring is there, begins when a line comes in.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/plugin.h"

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  struct dyn_process *process = dyn_process_get(NULL);
  if (process->ring == NULL) return 1;
  dyn_process_ref();
  printf("%u %llu\n", process->ring->pid, (unsigned long long)process->ring->startTime);
  fflush(stdout);
  if (getchar() == EOF) return 1;
  struct dyn_sample sample = {.commId = 5, .seq = 9, .bytes = 1 << 20, .counterNs = 1000, .signalNs = 2000, .planVersion = 3,
                              .action = 0x180111, .rank = 1, .collective = 4, .algorithm = 1, .protocol = 1, .channels = 24,
                              .nRanks = 8};
  for (long i = 0, samples = atol(argv[1]); i < samples;) {
    if (dyn_ring_put(process, &sample)) i++;
    else sched_yield(); /* full */
  }
  getchar(); /* the reader has it all when it closes the pipe */
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What chain_recorder.c writes down and test_profiler_chain.c reads.
 */
#ifndef DYN_CHAIN_RECORDER_H
#define DYN_CHAIN_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#define RECORDS 4096

struct record {
  uint64_t type;
  void *parent, *group, *context;
  char func[16];
  size_t count;
  int channels, isSend, state, stops;
  uint64_t timer;
};

struct recorder {
  int wantMask, failing, initFails; /* set by the test */
  int inits, finalized, starts, stops, count, rank;
  uint64_t commId;
  int *mask;
  struct record records[RECORDS];
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults on purpose, so that what is to notice slow and dead peers can be tested. Nothing sleeps: a transfer has a time before
 * which it is not done, and its signal not sent.
 *   DYNAMICCL_CARRIER_LATENCY_US  every put and signal takes at least so long
 *   DYNAMICCL_CARRIER_GBS         a rank's puts and signals of one communicator share a link of so many GB a second
 *   DYNAMICCL_CARRIER_DEAD_RANK   what goes to or comes from this rank is taken and never arrives
 *   DYNAMICCL_CARRIER_FAULTS      a file with such lines that is looked at while a communicator runs:
 *                                   latency_us 1.3
 *                                   gbs 10
 *                                   dead_rank 2
 * The file counts over the variables in what it names (gbs 0, dead_rank -1: none); where it names nothing, or is not there, they
 * hold. A file with a wrong
 * line changes nothing. Who writes it should rename it into place: else a part of it may be read. What was for a rank while that
 * was dead arrives when it no longer is.
 */
#ifndef DYN_CARRIER_FAULT_H
#define DYN_CARRIER_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct carrier_faults {
  uint64_t latencyNs;  /* 0: none */
  double gbs;          /* bytes a nanosecond; 0: no cap */
  atomic_int deadRank; /* -1: none */
  uint64_t linkFreeNs;
  struct { double latencyUs, gbs, deadRank; } variables; /* what they say */
};

uint64_t carrier_now_ns(void); /* CLOCK_MONOTONIC */
/* What the variables say. False: a value is none; it was said which. */
bool carrier_faults_read(struct carrier_faults *faults);
/* What the file says now; a change is said once in a process. */
void carrier_faults_look(struct carrier_faults *faults);
/* Of a transfer that begins now: when it may be done; 0: at once. */
uint64_t carrier_due_ns(struct carrier_faults *faults, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls, and puts over GIN, took on other hosts than rank 0's, whose daemon plans and would hear of its own host's ranks alone: samples of
 * this process on their way to there, and those of others on their way into its ring. Of one thread, but for dyn_hosts_samples_at.
 */
#ifndef DYN_HOSTS_SAMPLES_H
#define DYN_HOSTS_SAMPLES_H

#include <stdbool.h>

#include "../abi.h"

#define DYN_HOSTS_LOOK 64 /* samples of one look: 3,200 a second, 0.3 MB/s, where there are 50 looks; of more calls some are left out, for choices are settled by few */
#define DYN_HOSTS_PUTS 16 /* and of puts among these, where calls leave room for them: 800 a second */

/* Where this process's samples are: hold gives the ring until it is released, or NULL: there is none, or it cannot be had at once. */
void dyn_hosts_samples_at(struct dyn_ring *(*hold)(void), void (*release)(void));

/* A rank elsewhere has told: into the ring, at the next exchange. */
void dyn_hosts_hear(const struct dyn_sample *sample);

/* So many samples found no room on their way: counted in the ring. */
void dyn_hosts_lose(uint64_t count);

/* What was heard goes into the ring. wanted: of samples that calls and puts of this process have left since the look before; NULL: of none.
 * How many there are, those of calls first. samples: DYN_HOSTS_LOOK; NULL: this is no time to look. */
unsigned dyn_hosts_exchange(bool (*wanted)(const struct dyn_sample *sample), struct dyn_sample *samples, unsigned *calls);

void dyn_hosts_forget_samples(void);

#endif

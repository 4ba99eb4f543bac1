/* SPDX-License-Identifier: Apache-2.0
 *
 * The world of the exhaustive check: ranks that run the shipped steps of epoch.h, a publisher that follows decision 4
 * of docs/design.md, and the memory between them. A state is a small flat struct, so that states can be hashed and
 * kept.
 */
#ifndef DYN_MODEL_H
#define DYN_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_RANKS 3
#define MODEL_EPOCHS 6
#define MODEL_BUFFERS 4
#define MODEL_LOG 8

struct model_config {
  const char *name;
  int ranks, epochs;
  int publications;
  int buffers; /* fewer than publications: buffers must be used again */
  int crashes;
  int vetoes;  /* this many ranks join with a veto */
};

/* Decision 4 with one rule left out; the check must find each. */
enum model_publisher_mistake {
  PUBLISHER_RIGHT,
  PUBLISHER_IGNORES_LOG,
  PUBLISHER_IGNORES_STALLED, /* does not wait for the frontier to move after a buffer stopped being the newest */
};
extern enum model_publisher_mistake model_mistake;

enum model_rank_phase { RANK_JOINING, RANK_ENTERING, RANK_COPYING_FIRST, RANK_COPYING_SECOND, RANK_PUBLISHING,
                       RANK_DONE, RANK_CRASHED };

/* Epochs, versions and buffers fit in a byte each; words of the protocol are packed as epoch and low byte. */
struct model_rank {
  uint8_t phase, epoch, slot, version, firstHalf;
  uint8_t pc, tries, index, flags, current, want, resolved;
  uint8_t frontier[2], entry[2], limit;
};

enum model_publisher_phase {
  PUBLISHER_AT_FRONTIER, /* the order of reading is the daemon's, nccltuner/publisher.go */
  PUBLISHER_AT_POSITIONS,
  PUBLISHER_AT_LOG,
  PUBLISHER_AT_FIRST_HALF,
  PUBLISHER_AT_SECOND_HALF,
  PUBLISHER_AT_NEWEST,
  PUBLISHER_AT_SUPERSEDED,
  PUBLISHER_DONE,
};

struct model_publisher {
  uint8_t phase, index, version, buffer, newest;
  uint8_t named;   /* bit b: buffer b is in use as far as seen */
  uint8_t slowest; /* epoch of the slowest rank as far as seen */
  uint8_t frontier[2];
  uint8_t superseded[MODEL_BUFFERS][2]; /* frontier read after a newer buffer was stored */
  uint8_t used;                         /* bit b: was published at some time */
};

struct model_state {
  uint8_t frontier[2];
  uint8_t changes[MODEL_LOG][2];
  uint8_t newest[2]; /* version, plan buffer + 1 */
  uint8_t joined, veto, crashes;
  uint8_t positions[MODEL_RANKS][2];
  uint8_t content[MODEL_BUFFERS][2]; /* version in each half of a buffer */
  /* 255: nobody has resolved it; history, for the check */
  uint8_t decidedSlot[MODEL_EPOCHS], decidedVersion[MODEL_EPOCHS];
  uint8_t published; /* bit v: version v was the newest at some time */
  struct model_rank ranks[MODEL_RANKS];
  struct model_publisher publisher;
};

void model_init(struct model_state *s, const struct model_config *config);
/* Actors 0..ranks-1 are ranks, the next the publisher, the next ranks are "this rank crashes". False: not possible now.
 * *wrong is set to what was violated, if anything was. */
bool model_step(struct model_state *s, const struct model_config *config, int actor, const char **wrong);
int model_actors(const struct model_config *config);
/* Runs one rank alone to its end; the number of steps, or -1 when it does not end. */
int model_solo(struct model_state s, const struct model_config *config, int rank);

#endif

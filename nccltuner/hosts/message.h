/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks and the hub say to each other. A connection is one rank's of one communicator; both ends are little endian and of one version.
 */
#ifndef DYN_HOSTS_MESSAGE_H
#define DYN_HOSTS_MESSAGE_H

#include <stdint.h>

#include "../abi.h"

#define DYN_HOSTS_VERSION (DYN_ABI_VERSION << 8 | 7) /* plans, marks and flags are of the layout's version */
#ifndef DYN_HOSTS_SEEK_NS
#define DYN_HOSTS_SEEK_NS UINT64_C(60000000000) /* for so long a rank tries to reach the hub, and no longer */
#endif
#ifndef DYN_HOSTS_GONE_NS
#define DYN_HOSTS_GONE_NS UINT64_C(10000000000) /* whoever has not come back for so long kernels over GIN wait for no longer */
#endif

enum dyn_hosts_kind {
  DYN_HOSTS_HELLO = 1, /* rank: first on a connection */
  DYN_HOSTS_TOGETHER,  /* hub: all ranks are here. count: of them on this rank's host; host: rank 0's */
  DYN_HOSTS_TELL,      /* rank: struct dyn_hosts_word, what it allows, whenever that changes */
  DYN_HOSTS_OTHERS,    /* hub, to rank 0: the same of all ranks on other hosts than its own */
  DYN_HOSTS_PROPOSE,   /* rank 0: struct dyn_plan */
  DYN_HOSTS_PREPARE,   /* hub: struct dyn_plan, to come into force at epoch */
  DYN_HOSTS_ANSWER,    /* rank: refusal 0: its fence is up, and it will do as the hub decides. count: DYN_ALL_*, as it counts AllToAll */
  DYN_HOSTS_DECIDE,    /* hub: refusal 0: it comes into force. rank: who refused */
  DYN_HOSTS_SAMPLES,   /* rank on another host than rank 0, and hub to rank 0: struct dyn_hosts_samples, the first count of them: calls */
  DYN_HOSTS_TRIPS,     /* likewise: puts (DYN_SAMPLE_TRIP) */
  DYN_HOSTS_WISH,      /* rank: struct dyn_hosts_gin. refusal 0: it can make GIN's own communicator with all others, and will; id: rank 0's */
  DYN_HOSTS_VERDICT,   /* hub: struct dyn_hosts_gin. refusal 0: all can, and begin, with rank 0's id; else none of them does */
  DYN_HOSTS_BYE,       /* rank: it leaves as programs do */
  DYN_HOSTS_GONE,      /* hub: rank has gone without that, and does not come back */
  DYN_HOSTS_KINDS,
};

struct dyn_hosts_message {
  uint16_t version;
  uint16_t kind;
  uint32_t bytes;   /* that follow */
  uint64_t commId;
  uint64_t nonce;   /* HELLO: the id's (ids.h) */
  uint64_t host;    /* HELLO: of ranks with one record the same number */
  uint64_t epoch;   /* PREPARE: in which the plan is to come into force */
  uint64_t question; /* PREPARE, ANSWER, DECIDE: of the hub's, which it numbers from 1. HELLO: that this rank's fence is raised for; 0: none */
  uint64_t entered; /* rank: the last epoch that it has entered */
  uint32_t nRanks;
  uint32_t rank;
  uint32_t count;   /* HELLO: calls of an epoch. SAMPLES, TRIPS: how many. ANSWER: DYN_ALL_* */
  uint32_t refusal; /* DYN_REFUSED_* */
};
_Static_assert(sizeof(struct dyn_hosts_message) == 72, "without padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "so go messages");

/* What a rank allows. */
struct dyn_hosts_word {
  uint32_t flags; /* DYN_RANK_*, with DYN_RANK_VETO for its record's */
  uint32_t ncclVersion;
  uint32_t marks[DYN_NUM_COLLECTIVES][DYN_NUM_BUCKETS];
};

#define DYN_HOSTS_SAMPLES_AT_ONCE 16
struct dyn_hosts_samples {
  struct dyn_sample samples[DYN_HOSTS_SAMPLES_AT_ONCE];
};

/* For GIN's own communicator: its ncclUniqueId. */
struct dyn_hosts_gin {
  uint8_t id[128];
};

#define DYN_HOSTS_MOST_BYTES sizeof(struct dyn_plan)
_Static_assert(sizeof(struct dyn_hosts_samples) <= DYN_HOSTS_MOST_BYTES, "the longest is a plan");
_Static_assert(sizeof(struct dyn_hosts_word) <= DYN_HOSTS_MOST_BYTES, "the longest is a plan");

/* How many bytes follow a message of this kind. */
static inline uint32_t dyn_hosts_bytes(unsigned kind) {
  if (kind == DYN_HOSTS_SAMPLES || kind == DYN_HOSTS_TRIPS) return sizeof(struct dyn_hosts_samples);
  if (kind == DYN_HOSTS_WISH || kind == DYN_HOSTS_VERDICT) return sizeof(struct dyn_hosts_gin);
  if (kind == DYN_HOSTS_PROPOSE || kind == DYN_HOSTS_PREPARE) return sizeof(struct dyn_plan);
  return kind == DYN_HOSTS_TELL || kind == DYN_HOSTS_OTHERS ? sizeof(struct dyn_hosts_word) : 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on several hosts: each host has a record of its own, in which not all ranks are, so the record decides nothing. What is in force
 * is what all ranks have promised to each other (hosts/fence.h), by a thread of the preload library's, or NCCL's defaults.
 */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../kernels/host/host.h"
#include "../hosts/hosts.h"
#include "comm.h"
#include "everywhere.h"

#define SAY_MS 10000
#define WAIT_NS 20000

static const struct dyn_hosts_calls *hosts_of(const struct dyn_member *member) {
  const struct dyn_device_calls *device = dyn_device_of(member);
  return device ? device->hosts : NULL;
}

/* The same number on ranks that have one record in memory, and on no other. */
static uint64_t host_of(const struct dyn_member *member) {
  unsigned char boot[64] = {0};
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : read(fd, boot, sizeof boot - 1);
  if (fd >= 0) close(fd);
  if (got <= 0) return 0;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < sizeof boot; i++) h = (h ^ boot[i]) * UINT64_C(0x100000001b3);
  h = (h ^ member->device) * UINT64_C(0x9E3779B97F4A7C15);
  h = (h ^ h >> 32 ^ member->inode) * UINT64_C(0x9E3779B97F4A7C15);
  return (h ^ h >> 32) | 1;
}

/* No rank can know for certain what the others have heard, so each says what it does, and the hub has no plan where one does otherwise. */
bool dyn_hosts_exchanges(const struct dyn_comm *comm, bool counts) {
  uint32_t settled = DYN_ALL_UNDECIDED, word = counts ? DYN_ALL_BEGIN : DYN_ALL_DECLINE;
  if (comm->fence == NULL) return false;
  return __atomic_compare_exchange_n(&comm->fence->exchanges, &settled, word, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ? counts : settled == DYN_ALL_BEGIN;
}

/* NCCL makes the communicator; nothing is waited for. */
void dyn_hosts_join(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  const struct dyn_hosts_calls *hosts = hosts_of(member);
  if (!hosts || comm->nNodes < 2 || comm->rank < 0 || __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE) == comm->nRanks) return;
  struct dyn_hosts_place place = {.record = comm->record, .self = comm->self, .commId = comm->commId, .host = host_of(member), .nRanks = comm->nRanks,
                                  .rank = (uint32_t)comm->rank, .gin = dyn_gin_between_hosts(comm)};
  if (place.host != 0) comm->fence = hosts->begin(&place, comm->log);
  if (!place.gin) dyn_hosts_exchanges(comm, false);
}

void dyn_hosts_part(struct dyn_member *member) {
  const struct dyn_hosts_calls *hosts = hosts_of(member);
  struct dyn_fence *fence = member->comm.fence;
  __atomic_store_n(&member->comm.fence, NULL, __ATOMIC_RELAXED);
  if (fence && hosts) hosts->leave(fence);
}

/* The others may have been told to take the plan, or to drop it: this rank waits for the word, which is milliseconds away unless the process
 * that gives it is stopped. */
static enum dyn_fence_answer wait_for_word(const struct dyn_comm *comm, struct dyn_fence *fence) {
  uint64_t began = dyn_host_ns(), said = 0;
  enum dyn_fence_answer answer;
  __atomic_store_n(&fence->waiting, 1, __ATOMIC_SEQ_CST);
  while ((answer = dyn_fence_ask(fence, comm->fenceEpoch)) == DYN_FENCE_WAIT) {
    uint64_t waited = (dyn_host_ns() - began) / (SAY_MS * DYN_NS_PER_MS);
    if (waited > said)
      dyn_say(comm->log, DYN_LOG_WARN, "rank %d has waited %llu s to hear from the process that made its communicator's id whether a plan is in force", comm->rank,
              (unsigned long long)(waited * SAY_MS / 1000));
    said = waited;
    nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
  }
  __atomic_store_n(&fence->waiting, 0, __ATOMIC_SEQ_CST);
  return answer;
}

static void take_plan(struct dyn_comm *comm, struct dyn_fence *fence) {
  memcpy(&comm->plan, &fence->plan, sizeof comm->plan);
  dyn_fence_taken(fence);
  comm->deviceLL = false; /* of one node */
  comm->patSums = true;   /* what other hosts' NCCL is nobody here knows for certain */
  comm->seesGathers = false; /* nor whether it sees all calls */
  comm->ownGathers = false; /* a plan that all ranks have promised has a number there where all of them know (hosts/rank.c), and else none */
  comm->closeLeft = comm->plan.closeEpochs; /* from here on, which is the same call on all ranks */
  __atomic_store_n(&comm->self->agreed, comm->plan.version, __ATOMIC_RELEASE);
}

void dyn_hosts_pass(struct dyn_comm *comm) {
  struct dyn_fence *fence = comm->fence;
  if (comm->fenceEpoch++ == 0) dyn_hosts_exchanges(comm, false); /* unless it is settled: calls were made */
  dyn_fence_enter(fence, comm->fenceEpoch);
  enum dyn_fence_answer answer = dyn_fence_ask(fence, comm->fenceEpoch);
  if (DYN_RARELY(answer == DYN_FENCE_WAIT)) answer = wait_for_word(comm, fence);
  if (answer == DYN_FENCE_TAKE) take_plan(comm, fence);
  if (answer != DYN_FENCE_FAIL || comm->lost) return;
  comm->lost = true;
  if (__atomic_load_n(&comm->fence, __ATOMIC_RELAXED) != fence) return; /* the program aborts the communicator */
  dyn_say(comm->log, DYN_LOG_WARN, "rank %d has lost the process that made its communicator's id while it was to say whether a plan is in force: other ranks may "
          "run it and this one cannot know, so its calls fail", comm->rank);
}

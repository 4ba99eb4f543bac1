/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of this process: who opened them, which half still uses them, and what becomes of them in the child of
 * a fork and at exit. NCCL calls the profiler's init before the tuner's, for one communicator and in one thread, and
 * either half may be missing; tuner v2-v4 name no communicator, so the thread is what joins the halves there.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "../preload/gathers.h"
#include "everywhere.h"
#include "comm.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dyn_member *members; /* under lock */
static pthread_once_t forkOnce = PTHREAD_ONCE_INIT;

static void fork_prepare(void) {
  pthread_mutex_lock(&lock);
  dyn_process_fork_prepare();
}

static void fork_parent(void) {
  dyn_process_fork_parent();
  pthread_mutex_unlock(&lock);
}

/* The registration is the parent's: the child drops the mappings and every communicator passes through there. What the
 * child opens itself is registered under its own pid. */
static void fork_child(void) {
  for (struct dyn_member *m = members; m; m = m->next) {
    if (m->comm.record) munmap(m->comm.record, m->comm.recordBytes);
    m->comm.record = NULL;
    m->comm.self = NULL;
    m->comm.lsa = NULL;
    m->comm.fence = NULL;
    m->comm.gathers = m->comm.averages = m->comm.registers = NULL;
    m->comm.sampling = 0;
    m->comm.process = NULL;
    m->pending = false;
  }
  dyn_process_fork_child();
  dyn_directory_forget();
  dyn_why_fork_child();
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* glibc forgets the handlers when the library is closed. */
static void watch_forks(void) { pthread_atfork(fork_prepare, fork_parent, fork_child); }

static struct dyn_member *new_member(uint64_t commId, uint32_t nRanks, uint32_t nNodes, int rank, dyn_logger log) {
  struct dyn_member *member = aligned_alloc(64, sizeof *member); /* what a call looks at is in two lines of cache then */
  if (!member) return NULL;
  memset(member, 0, sizeof *member);
  pthread_once(&forkOnce, watch_forks);
  member->comm.commId = commId;
  member->comm.nRanks = nRanks;
  member->comm.nNodes = nNodes;
  member->comm.rank = rank;
  member->comm.forced = getenv("DYNAMICCL_FORCED") != NULL;
  member->comm.log = log;
  member->opener = pthread_self();
  atomic_init(&member->comm.refs, 1);
  pthread_mutex_lock(&lock);
  member->next = members;
  members = member;
  pthread_mutex_unlock(&lock);
  return member;
}

static void release(struct dyn_member *member) {
  if (atomic_fetch_sub(&member->comm.refs, 1) != 1) return;
  pthread_mutex_lock(&lock);
  for (struct dyn_member **at = &members; *at; at = &(*at)->next) {
    if (*at != member) continue;
    *at = member->next;
    break;
  }
  pthread_mutex_unlock(&lock);
  free(member);
}

struct dyn_comm *dyn_comm_open(uint64_t commId, int nRanks, int nNodes, int rank, dyn_logger log) {
  struct dyn_member *member = new_member(commId, (uint32_t)nRanks, (uint32_t)nNodes, rank, log);
  if (!member) return NULL;
  member->comm.hasProfiler = 1;
  pthread_mutex_lock(&lock);
  member->pending = true;
  pthread_mutex_unlock(&lock);
  return &member->comm;
}

/* The newest that the profiler opened in this thread and that fits; members are kept newest first. */
static struct dyn_member *take_pending(int hasId, uint64_t commId, uint32_t nRanks, uint32_t nNodes) {
  struct dyn_member *found = NULL;
  pthread_mutex_lock(&lock);
  for (struct dyn_member *m = members; m && !found; m = m->next)
    if (m->pending && pthread_equal(m->opener, pthread_self()) && m->comm.nRanks == nRanks &&
        m->comm.nNodes == nNodes && (!hasId || m->comm.commId == commId))
      found = m;
  if (found) {
    found->pending = false;
    atomic_fetch_add(&found->comm.refs, 1);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

struct dyn_comm *dyn_comm_claim(const void *inside, int hasId, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log) {
  uint32_t ranks = nRanks > UINT32_MAX ? UINT32_MAX : (uint32_t)nRanks;
  uint32_t nodes = nNodes > UINT32_MAX ? UINT32_MAX : (uint32_t)nNodes;
  struct dyn_member *member = take_pending(hasId, commId, ranks, nodes);
  if (!member) {
    member = new_member(commId, ranks, nodes, -1, log);
    if (!member) return NULL;
    if (hasId)
      dyn_say_once(log, DYN_LOG_INFO, "the tuner runs without DynamICCL's profiler: a daemon's stored choices are used, "
                   "nothing is explored; set NCCL_PROFILER_PLUGIN=dynamiccl (and DYNAMICCL_CHAIN_PROFILER for your own)");
    if (!hasId) {
      dyn_say_why_once(log, DYN_LOG_INFO, "this NCCL tells the tuner no communicator id: running plain NCCL; tuning needs NCCL 2.28, or 2.27 with "
                       "DynamICCL's profiler (NCCL_PROFILER_PLUGIN=dynamiccl)");
      dyn_why_tell(0, true);
      member->comm.tunerLive = 1;
      return &member->comm;
    }
  }
  member->comm.tunerLive = 1;
  member->comm.inside = inside;
  dyn_device_settle(&member->comm);
  if (!member->comm.own) dyn_record_join(member);
  if (member->comm.record) {
    member->comm.callsLeft = member->epochCalls;
    if (member->comm.hasProfiler) {
      dyn_process_ref();
      member->comm.process = dyn_process_get(log);
      dyn_heartbeat_start(member);
      dyn_sampling_set(member, 1);
      member->comm.windowSeq = UINT64_MAX; /* before the first call */
    }
    dyn_device_join(member);
    dyn_hosts_join(member);
  } else if (!member->comm.own) dyn_record_miss(&member->comm);
  return &member->comm;
}

void dyn_comm_release_tuner(struct dyn_comm *comm) {
  if (!comm) return;
  struct dyn_member *member = dyn_member_of(comm);
  struct dyn_process *process = member->comm.process;
  if (comm->record) {
    dyn_hosts_part(member);
    dyn_device_leave(member);
    dyn_gathers_leave(comm);
    dyn_sampling_set(member, 0);
    dyn_record_leave(member, DYN_LEAVE_WAIT_MS);
    /* Taken out of the member before it goes: a fork in between must not find it. */
    pthread_mutex_lock(&lock);
    void *record = comm->record;
    comm->record = NULL;
    comm->self = NULL;
    member->comm.process = NULL;
    pthread_mutex_unlock(&lock);
    munmap(record, comm->recordBytes);
    if (process) dyn_process_unref();
  } else dyn_gathers_leave(comm);
  comm->tunerLive = 0;
  release(member);
}

void dyn_comm_release_profiler(struct dyn_comm *comm) {
  if (!comm) return;
  pthread_mutex_lock(&lock);
  dyn_member_of(comm)->pending = false;
  pthread_mutex_unlock(&lock);
  release(dyn_member_of(comm));
}

/* A program that ends without destroying its communicators: their ranks leave, so that no file waits for the daemon and
 * no survivor waits for room in a log. Memory stays mapped, for other threads may still run. When NCCL closes the
 * library the list is empty. */
__attribute__((destructor)) static void leave_all(void) {
  if (pthread_mutex_trylock(&lock) != 0) return;
  for (struct dyn_member *m = members; m; m = m->next)
    if (m->comm.record) dyn_record_leave(m, 0);
  dyn_process_exit();
  pthread_mutex_unlock(&lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining and leaving the record of a communicator (docs/design.md, decision 1). Everything here runs when
 * communicators are made and destroyed, under join.lock, so at most one rank of the directory at a time looks at or
 * makes a record.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../preload/gathers.h"
#include "comm.h"
#include "everywhere.h"
#include "left.h"
#include "nccl_env.h"
#include "shows.h"
#include "transport.h"

#define DYN_MAX_EPOCH_CALLS 65536 /* a record that states more is not one of ours */

static size_t record_bytes(uint32_t nRanks) { return sizeof(struct dyn_record) + nRanks * sizeof(struct dyn_rank); }

static void record_path(const struct dyn_member *member, const char *directory, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/comm-%016" PRIx64 ".shm", directory, member->comm.commId);
}

enum finding { RECORD_JOINABLE, RECORD_STALE, RECORD_REFUSED };

/* The header of an open file; which of the three it is, as far as the header can tell. */
static enum finding inspect_header(int fd, const char *path, dyn_logger log, struct dyn_record *head) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
    dyn_say_why(log, DYN_LOG_WARN, "%s is not a file of this user: running plain NCCL; remove it", path);
    return RECORD_REFUSED;
  }
  memset(head, 0, sizeof *head);
  ssize_t got = pread(fd, head, offsetof(struct dyn_record, joined), 0);
  /* The magic is written last and under the lock that we hold: its writer died before it was done. */
  if (got < (ssize_t)sizeof head->header || head->header.magic == 0) return RECORD_STALE;
  if (head->header.magic != DYN_RECORD_MAGIC) {
    dyn_say_why(log, DYN_LOG_WARN, "%s is not a DynamICCL record: running plain NCCL; remove it", path);
  } else if (head->header.version != DYN_ABI_VERSION) {
    dyn_say_why(log, DYN_LOG_WARN, "%s has version %u and this library speaks %u: running plain NCCL; load the same "
            "library in every rank", path, head->header.version, DYN_ABI_VERSION);
  } else if (dyn_is_elsewhere(head->header.pidNamespace)) {
    dyn_say_why(log, DYN_LOG_WARN, "ranks of one communicator share %.*s and are in different PID namespaces (containers), where none knows "
                "whether another lives: running plain NCCL; start the containers with one (--pid=host), or, if NCCL takes them for nodes, "
                "give each a DYNAMICCL_DIR of its own",
                (int)(strrchr(path, '/') - path), path);
  } else if (head->nRanks < 1 || head->nRanks > DYN_MAX_RANKS || head->header.sizeBytes != record_bytes(head->nRanks) ||
             (uint64_t)st.st_size < head->header.sizeBytes || head->epochCalls < 1 ||
             head->epochCalls > DYN_MAX_EPOCH_CALLS) {
    dyn_say_why(log, DYN_LOG_WARN, "%s is damaged (%" PRIu64 " bytes stated, %lld there): running plain NCCL; remove it",
            path, head->header.sizeBytes, (long long)st.st_size);
  } else {
    return RECORD_JOINABLE;
  }
  return RECORD_REFUSED;
}

static enum finding inspect_ranks(const struct dyn_member *member, struct dyn_record *record, const char *path) {
  const struct dyn_comm *comm = &member->comm;
  uint32_t joined = __atomic_load_n(&record->joined, __ATOMIC_ACQUIRE);
  if (joined > record->nRanks) return RECORD_STALE;
  for (uint32_t i = 0; i < joined; i++)
    if (dyn_is_over(&dyn_ranks_of(record)[i])) return RECORD_STALE;
  if (record->nRanks != comm->nRanks || record->nNodes != comm->nNodes) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "ranks of communicator %016" PRIx64 " differ about its shape (%u ranks on %u "
            "nodes, here %u on %u): running plain NCCL", comm->commId, record->nRanks, record->nNodes, comm->nRanks,
            comm->nNodes);
    return RECORD_REFUSED;
  }
  for (uint32_t i = 0; i < joined; i++) {
    if (comm->rank < 0 || dyn_ranks_of(record)[i].rank != comm->rank) continue;
    dyn_say_why(comm->log, DYN_LOG_WARN, "rank %d of communicator %016" PRIx64 " has joined already, as process %u: "
            "running plain NCCL", comm->rank, comm->commId, dyn_ranks_of(record)[i].pid);
    return RECORD_REFUSED;
  }
  if (joined == record->nRanks) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "%s has all its %u ranks: running plain NCCL", path, joined);
    return RECORD_REFUSED;
  }
  return RECORD_JOINABLE;
}

static struct dyn_record *map_record(struct dyn_member *member, int fd, size_t bytes) {
  struct stat st;
  /* Populated: the first access in getCollInfo must not be a page fault. */
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED || fstat(fd, &st) != 0) {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    return NULL;
  }
  member->device = st.st_dev;
  member->inode = st.st_ino;
  return memory;
}

static struct dyn_record *create(struct dyn_member *member, const char *path) {
  struct dyn_comm *comm = &member->comm;
  size_t bytes = record_bytes(comm->nRanks);
  int fd = dyn_create_file(path, bytes);
  struct dyn_record *record = fd < 0 ? NULL : map_record(member, fd, bytes);
  if (!record) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "cannot create %s (%zu bytes): %s: running plain NCCL; %s", path, bytes, strerror(errno),
                dyn_create_remedy(errno));
    if (fd >= 0) unlink(path), close(fd);
    return NULL;
  }
  close(fd);
  record->header.version = DYN_ABI_VERSION;
  record->header.pidNamespace = dyn_pid_namespace();
  record->header.sizeBytes = bytes;
  record->commId = comm->commId;
  record->nRanks = comm->nRanks;
  record->nNodes = comm->nNodes;
  record->epochCalls = DYN_EPOCH_CALLS;
  __atomic_store_n(&record->header.magic, DYN_RECORD_MAGIC, __ATOMIC_RELEASE);
  return record;
}

/* The record of this communicator that can be joined, mapped; made when there is none or a stale one. */
static struct dyn_record *open_or_create(struct dyn_member *member, const char *path) {
  struct dyn_comm *comm = &member->comm;
  struct dyn_record head, *record = NULL;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return create(member, path);
  if (fd < 0) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "cannot open %s: %s: running plain NCCL; remove it", path, strerror(errno));
    return NULL;
  }
  enum finding finding = inspect_header(fd, path, comm->log, &head);
  if (finding == RECORD_JOINABLE) {
    record = map_record(member, fd, record_bytes(head.nRanks));
    if (!record) dyn_say_why(comm->log, DYN_LOG_WARN, "cannot map %s: %s: running plain NCCL; free some memory, or raise the limit on it (ulimit -v)", path, strerror(errno));
    finding = record ? inspect_ranks(member, record, path) : RECORD_REFUSED;
    if (record && finding != RECORD_JOINABLE) munmap(record, record_bytes(head.nRanks));
  }
  close(fd);
  if (finding == RECORD_REFUSED) return NULL;
  if (finding == RECORD_JOINABLE) return record;
  /* Whoever still maps the stale generation keeps its memory; the name is free for the next one. */
  if (unlink(path) == 0) return create(member, path);
  dyn_say_why(comm->log, DYN_LOG_WARN, "cannot remove %s, which ranks that are gone have left: %s: running plain NCCL; remove it", path, strerror(errno));
  return NULL;
}

/* A variable with which the user decides; NULL: none. */
const char *dyn_user_decides(void) {
  const char *algo = getenv("NCCL_ALGO"), *proto = getenv("NCCL_PROTO");
  return algo && *algo ? "NCCL_ALGO" : proto && *proto ? "NCCL_PROTO" : NULL;
}

int dyn_switched_on(const char *name) { return dyn_is_on(getenv(name)); }

static uint64_t run_id(void) {
  const char *value = getenv("DYNAMICCL_RUN");
  return value ? strtoull(value, NULL, 16) : 0;
}

/* The preload library, where all of the communicator's calls go through it; NULL: they do not. */
static const struct dyn_preload *preload_of(const struct dyn_comm *comm) {
  return comm->hasProfiler && !comm->past ? dyn_process_get(comm->log)->preload : NULL;
}

/* What configs of communicators have named; 0: not known. */
static unsigned named_networks(const struct dyn_comm *comm) {
  const struct dyn_preload *preload = preload_of(comm);
  return preload ? atomic_load(&preload->networks) : 0;
}

/* By what the preload library sees of groups. NULL: it does not. */
static struct dyn_gathers *gathers_of(const struct dyn_comm *comm) {
  const struct dyn_preload *preload = preload_of(comm);
  return preload && preload->gathers ? preload->gathers->of(comm->inside, comm->nRanks, (uint32_t)comm->rank) : NULL;
}

/* Calls that NCCL takes for its device kernels', which have none (everywhere.h). */
static bool fails_to_average(const struct dyn_comm *comm, uint32_t ncclVersion) {
  return nccl_is_on("NCCL_SYM_NOWIN_ENABLE") && comm->nNodes == 1 && ncclVersion >= DYN_DEVICE_LOADS;
}

void dyn_record_miss(struct dyn_comm *comm) {
  if (fails_to_average(comm, dyn_nccl_version(comm->log))) comm->averages = gathers_of(comm);
}

void dyn_gathers_leave(struct dyn_comm *comm) {
  struct dyn_gathers *told = comm->gathers ? comm->gathers : comm->averages ? comm->averages : comm->registers;
  if (told) dyn_process_preload()->gathers->over(told);
  comm->gathers = comm->averages = comm->registers = NULL;
}

/* Whether this rank is the first one of the record whose user decides. */
static bool register_rank(struct dyn_member *member, struct dyn_record *record, uint64_t startTime,
                          uint32_t ncclVersion, struct dyn_transport transport) {
  bool vetoes = false;
  struct dyn_comm *comm = &member->comm;
  struct dyn_rank *self = &dyn_ranks_of(record)[record->joined];
  self->pid = (uint32_t)getpid();
  self->startTime = startTime;
  self->rank = comm->rank;
  self->ncclVersion = ncclVersion;
  self->memoryState = DYN_MEMORY_NONE;
  self->transport = transport.kind;
  self->nics = transport.nics;
  /* Set, not added: a rank may have died writing this slot. */
  self->flags = comm->hasProfiler ? 0 : DYN_RANK_NO_PROFILER;
  if (comm->hasProfiler) self->flags |= dyn_timing_flags(comm);
  if (dyn_switched_on("DYNAMICCL_NO_EXPLORE")) self->flags |= DYN_RANK_NO_EXPLORE;
  if (dyn_switched_on("DYNAMICCL_FIXED_NUMERICS")) self->flags |= DYN_RANK_FIXED_NUMERICS;
  if (dyn_switched_on("DYNAMICCL_NEW_GRAPHS")) self->flags |= DYN_RANK_NEW_GRAPHS;
  if (nccl_is_on("NCCL_SYM_NOWIN_ENABLE")) self->flags |= DYN_RANK_DEVICE_LL;
  if (nccl_is_on("NCCL_SINGLE_PROC_MEM_REG_ENABLE")) self->flags |= DYN_RANK_SHARES_LL;
  if (preload_of(comm)) self->flags |= DYN_RANK_SIMULATES;
  if (self->flags & DYN_RANK_EVENT_TIMED) self->flags |= DYN_RANK_TELLS_APART;
  bool alone = dyn_alone_gathers(ncclVersion) || nccl_is_off("NCCL_ALLGATHERV_ENABLE");
  bool tells = !alone && dyn_tells_gathers(ncclVersion, nccl_is_on("NCCL_ENQUEUE_REARCH_ENABLE"));
  bool device = fails_to_average(comm, ncclVersion), asked = dyn_asks_of_windows(comm, ncclVersion), none = asked && (comm->forced || nccl_is_off("NCCL_WIN_ENABLE")), windows = asked && !none;
  struct dyn_gathers *told = tells || device || windows ? gathers_of(comm) : NULL;
  if (tells) comm->gathers = told;
  if (device) comm->averages = told;
  if (windows) comm->registers = told;
  if (comm->registers || none) self->flags |= DYN_RANK_SEES_WINDOWS;
  if (comm->averages) self->flags |= DYN_RANK_SEES_AVERAGES;
  if (alone || comm->gathers) self->flags |= DYN_RANK_ALONE_GATHERS;
  if (comm->gathers && comm->gathers->inThread) self->flags |= DYN_RANK_SEES_GATHERS;
  self->run = run_id();
  if (dyn_user_decides()) {
    self->flags |= DYN_RANK_VETO;
    vetoes = __atomic_exchange_n(&record->veto, 1, __ATOMIC_SEQ_CST) == 0;
  }
  comm->record = record;
  comm->self = self;
  comm->recordBytes = record_bytes(comm->nRanks);
  member->epochCalls = record->epochCalls;
  __atomic_fetch_add(&record->joined, 1, __ATOMIC_SEQ_CST);
  return vetoes;
}

/* `dynamiccld run` says itself, before the program or behind it, what it knows of a communicator that has joined. */
static void tell_unless_run(const struct dyn_comm *comm, bool speaks) {
  if (comm->self->run != 0) dyn_why_drop();
  else dyn_why_tell(comm->commId, speaks);
}

static void say_who_decides(const struct dyn_comm *comm, bool first) {
  const char *name = dyn_user_decides();
  if (!name) return;
  dyn_say_why_once(comm->log, DYN_LOG_WARN, "%s=%s is set: it is respected, and communicators of this process are not tuned; "
                   "unset it to let DynamICCL choose", name, getenv(name));
  tell_unless_run(comm, first);
}

/* Of this host: whoever joins later has found the same. */
static bool joined_first(const struct dyn_comm *comm) { return comm->self == dyn_ranks_of(comm->record); }

/* Once a process: why nothing is chosen, though the plugin is there: no daemon, or one of another release. Not where the user decides, not where a daemon
 * has published already and died since: its plan goes on, and not where who started the process tells it what to run and is no daemon (`calibrate`). */
static void miss_daemon(const struct dyn_comm *comm, const char *directory) {
  if (__atomic_load_n(&comm->record->veto, __ATOMIC_RELAXED) || __atomic_load_n(&comm->record->newest, __ATOMIC_RELAXED) || comm->forced)
    return;
  int layout = dyn_daemon_layout(comm->log);
  bool first = joined_first(comm);
  if (layout > 0 && layout != DYN_ABI_VERSION) {
    dyn_say_why_once(comm->log, DYN_LOG_WARN, "the daemon of %s speaks shared-memory layout %d and this library %d: running plain NCCL; "
                     "restart the daemon from the release of this library", directory, layout, DYN_ABI_VERSION);
    tell_unless_run(comm, first);
  }
  if (layout == DYN_DAEMON_ELSEWHERE) { /* under a run, too: it may have started this program in a container */
    dyn_say_why_once(comm->log, DYN_LOG_WARN, "the daemon of %s is in another PID namespace (container) than this program, where it cannot know "
                     "which ranks live: running plain NCCL; start them with one (--pid=host), or a daemon beside the program with a DYNAMICCL_DIR "
                     "of its own", directory);
    dyn_why_tell(comm->commId, first);
  }
  if (layout == DYN_DAEMON_NONE) { /* under a run, too: it may have started one on another host alone */
    dyn_say_why_once(comm->log, DYN_LOG_INFO, "no daemon in %s: running plain NCCL until one comes; start it with "
                     "`dynamiccld serve`, or the program with `dynamiccld run`; DYNAMICCL_QUIET=1 leaves out this line", directory);
    dyn_why_tell(comm->commId, first);
  }
}

/* tuner.c has why. What NCCL runs by itself is left to it: other hosts may run no plugin, and all ranks must choose alike. */
static void warn_of_sums(const struct dyn_comm *comm, uint32_t ncclVersion) {
  if (ncclVersion < 23203 || comm->nRanks < 2 || comm->nNodes != comm->nRanks || getenv("NCCL_PAT_ENABLE")) return;
  dyn_say_once(comm->log, DYN_LOG_WARN, "NCCL %u.%u.%u gives sums where a ReduceScatter is to average, if it takes the algorithm PAT, as it does for "
               "small calls with one rank a node: set NCCL_PAT_ENABLE=0 on all hosts", ncclVersion / 10000, ncclVersion / 100 % 100, ncclVersion % 100);
}

/* Of ranks on one host, which fail alike, rank 0 speaks; one that is not told its rank speaks for itself. */
static bool speaks(const struct dyn_comm *comm) { return comm->rank <= 0; }

static void join(struct dyn_member *member, const char *directory) {
  struct dyn_comm *comm = &member->comm;
  char path[PATH_MAX];
  uint64_t startTime = dyn_own_start();
  uint32_t ncclVersion = dyn_nccl_version(comm->log);
  warn_of_sums(comm, ncclVersion);
  if (!directory) return;
  if (startTime == 0) {
    dyn_say_why_once(comm->log, DYN_LOG_WARN, "/proc does not know process %d, this one: running plain NCCL; mount /proc, in this PID namespace", getpid());
    return;
  }
  struct dyn_transport transport = dyn_transport_find(&dyn_this_machine, comm->nRanks, comm->nNodes, named_networks(comm));
  int lock = dyn_join_lock(directory, DYN_JOIN_WAIT_MS);
  if (lock < 0 && errno != EWOULDBLOCK) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "%s/join.lock cannot be locked: %s: running plain NCCL; make room there, remove what "
                "is no file of this user, or set DYNAMICCL_DIR", directory, strerror(errno));
    return;
  }
  if (lock < 0) {
    dyn_say_why(comm->log, DYN_LOG_WARN, "%s/join.lock could not be had within %d ms: running plain NCCL; see who holds it "
                "with: fuser %s/join.lock", directory, DYN_JOIN_WAIT_MS, directory);
    return;
  }
  dyn_sweep_records(directory, comm->log);
  record_path(member, directory, path);
  struct dyn_record *record = open_or_create(member, path);
  bool firstVeto = record && register_rank(member, record, startTime, ncclVersion, transport);
  dyn_join_unlock(lock); /* what is said below may wait for who reads it */
  if (!record) return;
  say_who_decides(comm, firstVeto);
  miss_daemon(comm, directory);
  if (comm->hasProfiler && dyn_timing_flags(comm) & DYN_RANK_NO_TIMES) dyn_why_tell(comm->commId, joined_first(comm)); /* capture.c has said why */
}

void dyn_record_join(struct dyn_member *member) {
  const struct dyn_comm *comm = &member->comm;
  if (comm->nRanks < 1 || comm->nRanks > DYN_MAX_RANKS) {
    dyn_say_why_once(comm->log, DYN_LOG_INFO, "communicators of more than %d ranks run plain NCCL (this one has %u)",
                     DYN_MAX_RANKS, comm->nRanks);
    dyn_why_tell(comm->commId, speaks(comm));
    return;
  }
  join(member, dyn_directory(comm->log));
  /* Hosts fail each for themselves. */
  if (!comm->record) dyn_why_tell(comm->commId, speaks(comm) || comm->nNodes > 1);
}

void dyn_record_leave(struct dyn_member *member, int waitMs) {
  struct dyn_comm *comm = &member->comm;
  const char *directory = dyn_directory(NULL);
  char path[PATH_MAX];
  struct stat st;
  if (!comm->record) return;
  __atomic_store_n(&comm->self->position, UINT64_MAX, __ATOMIC_RELEASE);
  int lock = directory ? dyn_join_lock(directory, waitMs) : -1;
  if (lock < 0) return;
  bool last = true;
  uint32_t joined = __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < joined && i < comm->nRanks && last; i++) last = dyn_is_over(&dyn_ranks_of(comm->record)[i]);
  record_path(member, directory, path);
  if (last && lstat(path, &st) == 0 && st.st_dev == member->device && st.st_ino == member->inode) unlink(path);
  dyn_join_unlock(lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner half's own view of a communicator, and the calls between its files: directory.c, record.c,
 * comm.c, tuner.c, sampling.c.
 */
#ifndef DYN_COMM_H
#define DYN_COMM_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "marks.h"
#include "plugin.h"

/* NCCL's log levels and subsystems: ncclDebugLogLevel and ncclDebugLogSubSys, src/include/nccl_common.h */
#define DYN_LOG_WARN 2
#define DYN_LOG_INFO 3
#define DYN_LOG_INIT 0x1ul
#define DYN_LOG_TUNING 0x40ul

/* NCCL shows what has a subsystem of NCCL_DEBUG_SUBSYS: INIT, BOOTSTRAP and ENV unless it is set (src/debug.cc). Its own
 * WARN names all of them. */
#define dyn_say(log, level, ...) \
  do { \
    unsigned long flags_ = (level) == DYN_LOG_WARN ? ~0ul : DYN_LOG_INIT | DYN_LOG_TUNING; \
    if (log) (log)(level, flags_, __FILE__, __LINE__, "DynamICCL: " __VA_ARGS__); \
  } while (0)

/* For what concerns the process and not one communicator: hundreds of communicators would repeat it. */
#define dyn_say_once(log, level, ...) \
  do { \
    static atomic_flag said = ATOMIC_FLAG_INIT; \
    if (!atomic_flag_test_and_set(&said)) dyn_say(log, level, __VA_ARGS__); \
  } while (0)

/* why.c: why communicators run plain NCCL, and what to do. NCCL's log has it at once; dyn_why_tell puts it on standard error where that does not
 * show it: once a process, and not with DYNAMICCL_QUIET. Ranks that share a reason need one that speaks; the others of the communicator leave it to that
 * one, which may be of their process. */
void dyn_why(bool *said, dyn_logger log, int level, const char *file, int line, const char *format, ...) __attribute__((format(printf, 6, 7)));
void dyn_why_tell(uint64_t commId, bool speaks); /* 0: of no communicator */
void dyn_why_drop(void);
void dyn_why_fork_child(void);
#define dyn_say_why(log, level, ...) dyn_why(NULL, log, level, __FILE__, __LINE__, __VA_ARGS__)
#define dyn_say_why_once(log, level, ...) \
  do { \
    static bool said; \
    dyn_why(&said, log, level, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

#define DYN_NS_PER_MS UINT64_C(1000000)
#define DYN_JOIN_WAIT_MS 2000 /* 64 ranks join in 0.2 s; who holds the lock for longer is stuck */
#define DYN_LEAVE_WAIT_MS 200 /* leaving needs the lock only to tidy up, which the daemon does as well */

struct dyn_member {
  struct dyn_comm comm; /* first: the halves hand out a pointer to it */
  struct dyn_member *next;
  pthread_t opener; /* thread of the profiler's init */
  bool pending;     /* opened by the profiler half, not yet claimed by the tuner half */
  bool broken;      /* the record's words contradict each other: nothing can be proven, pass through for ever */
  uint32_t epochCalls;
  dev_t device;                /* of the record, to unlink this generation and no other */
  ino_t inode;
} __attribute__((aligned(64)));

static inline struct dyn_member *dyn_member_of(struct dyn_comm *comm) { return (struct dyn_member *)comm; }

/* An epoch begins, in which a plan may come into force: whatever becomes of this rank's record, as it is no other rank's on another host. */
static inline void dyn_pass_close(struct dyn_comm *comm) { comm->closeLeft -= comm->closeLeft > 0; }

/* They stand behind it. */
static inline struct dyn_rank *dyn_ranks_of(struct dyn_record *record) { return (struct dyn_rank *)(record + 1); }

/* directory.c */
#define DYN_DAEMON_NONE (-1)
#define DYN_DAEMON_ELSEWHERE (-2) /* one in another PID namespace: it cannot know which ranks live, and leaves ours alone */
int dyn_join_lock(const char *directory, int waitMs); /* a descriptor for dyn_join_unlock, -1 and errno, EWOULDBLOCK: not within waitMs */
void dyn_join_unlock(int fd);
bool dyn_daemon_lives(dyn_logger log);                /* one that may serve this process holds the directory now; waits for nothing */
int dyn_daemon_layout(dyn_logger log);                /* its DYN_ABI_VERSION, 0: not known; else DYN_DAEMON_* */
void dyn_sweep_rings(dyn_logger log);                 /* of processes that have ended, where no daemon lives */
int dyn_create_file(const char *path, size_t bytes);  /* a new file with all its space; -1 with errno */
const char *dyn_create_remedy(int error);             /* what to do where there is none */
void dyn_directory_forget(void);                      /* in the child of a fork: the user may change */

/* nccl_version.c: NCCL_VERSION code of the NCCL that owns this logger, 0: not known */
uint32_t dyn_nccl_version(dyn_logger log);

/* record.c */
void dyn_record_join(struct dyn_member *member);              /* comm.record stays NULL when it passes through */
void dyn_record_leave(struct dyn_member *member, int waitMs); /* the mapping stays */
void dyn_record_miss(struct dyn_comm *comm);   /* there is none: what this rank can hear by itself that keeps calls from failing */
void dyn_gathers_leave(struct dyn_comm *comm); /* of what the preload library tells of it */

/* dyn_rank.marks of what is ours, from bits by DYN_KERNEL_*, DYN_ABLE_GIN and DYN_ABLE_CONTEXTS */
#define DYN_MARKS_KERNELS_SHIFT 26
#define DYN_MARKS_KERNELS (((1u << DYN_NUM_KERNELS) - 1) << DYN_MARKS_KERNELS_SHIFT)
#define DYN_MARKS_HALF 16 /* they all lie above */

/* device.c: kernels over load and store. Joining waits for all ranks, while NCCL makes the communicator. */
void dyn_device_join(struct dyn_member *member);
void dyn_device_bind(struct dyn_comm *comm); /* in a call of the communicator; waits for nothing */
void dyn_device_leave(struct dyn_member *member);
const struct dyn_device_calls *dyn_device_of(const struct dyn_member *member); /* NULL: no preload library */
struct dyn_offer;
uint32_t dyn_device_ctas(const struct dyn_rank *rank); /* that its program lets a kernel have; 0: it does not say */
uint32_t dyn_device_contexts(const struct dyn_rank *rank); /* of GIN, likewise */
bool dyn_device_offers(const struct dyn_comm *comm, struct dyn_offer *offers); /* of all ranks; false: one is missing */
void dyn_device_room(struct dyn_comm *comm, const struct dyn_device_calls *device); /* what kernels have room for, anew */

/* hosts.c: ranks on several hosts. */
void dyn_hosts_join(struct dyn_member *member);
void dyn_hosts_part(struct dyn_member *member);
void dyn_hosts_pass(struct dyn_comm *comm); /* an epoch begins; waits at a raised fence */
bool dyn_hosts_exchanges(const struct dyn_comm *comm, bool counts); /* once, before the first call: whether AllToAll counts; as it is settled */

/* answer.c */
void dyn_answer_wait(struct dyn_comm *comm); /* the communicator is made; waits for the daemon's first plan, for milliseconds at most */

/* gin.c: NCCL's GIN, likewise. */
bool dyn_gin_wanted(const struct dyn_member *member);
void dyn_gin_say(struct dyn_comm *comm, uint32_t state); /* DYN_GIN_REFUSED or WANTED */
bool dyn_gin_between_hosts(const struct dyn_comm *comm); /* this rank can, and its user wants it there */
void dyn_gin_begin(struct dyn_member *member); /* the communicator is made; waits for all ranks */

struct dyn_preload *dyn_process_preload(void); /* process.c; NULL: there is none */

/* process.c: to the preload library, how many ranks of this host have joined. */
void dyn_tell_ranks(const struct dyn_comm *comm);

/* process.c, in the child of a fork, before anything else runs there */
void dyn_process_fork_prepare(void);
void dyn_process_fork_parent(void);
void dyn_process_fork_child(void);
/* At exit of the process: the ring's file goes, its memory stays for threads that still run. */
void dyn_process_exit(void);

static inline int dyn_bucket_of(size_t bytes) { /* not of 0 */
  int log2Bytes = 63 - __builtin_clzll(bytes);
  return log2Bytes < DYN_NUM_BUCKETS ? log2Bytes : DYN_NUM_BUCKETS - 1;
}

/* A heartbeat that has not moved for so many epochs is a dead daemon's. At 10,000 calls a second that is 6 s; at the
 * fastest that NCCL can enqueue (about 2 us a call) 0.1 s, so a daemon beats at least every 50 ms. Only sampling hangs
 * on it. */
#define DYN_HEARTBEAT_EPOCHS 4096
static inline bool dyn_daemon_beats(const struct dyn_member *member) {
  return member->comm.epoch - member->comm.heartbeatEpoch < DYN_HEARTBEAT_EPOCHS;
}

/* Kernels of ours run it, in NCCL's place. */
static inline bool dyn_is_ours(uint32_t action) { return (action & 15) == DYN_PATH_LSA || (action & 15) == DYN_PATH_GIN; }

/* sampling.c */
void dyn_sampling_set(struct dyn_member *member, int sampling);
void dyn_sampling_update(struct dyn_member *member); /* an epoch begins */
void dyn_heartbeat_start(struct dyn_member *member);
/* Of DYN_RANK_*, what says how this rank's calls are timed. */
uint32_t dyn_timing_flags(const struct dyn_comm *comm);
/* The call being made, in a process whose calls are timed by events: describes it where it is timed, and says whether the
 * next one like it is to be. */
void dyn_watch_call(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action);
void dyn_tell_kernel(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action);
void dyn_tell_captured(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action);

/* The call that this thread is in, as the preload library has it; NULL: there is none. */
static inline const struct dyn_preload_call *dyn_library_call(const struct dyn_comm *comm) {
  return comm->process && comm->process->preload ? comm->process->preload->call() : NULL;
}

/* The same; NULL: it does not time calls. */
static inline bool dyn_timed_by_events(const struct dyn_comm *comm) { return comm->process && comm->process->eventTimed; }
static inline const struct dyn_preload_call *dyn_thread_call(const struct dyn_comm *comm) {
  return dyn_timed_by_events(comm) ? comm->process->preload->call() : NULL;
}

/* capture.c: whether the call being made goes into a CUDA graph. call: dyn_thread_call */
bool dyn_told_in_graph(struct dyn_comm *comm, const struct dyn_preload_call *call);
static inline bool dyn_in_graph(struct dyn_comm *comm, const struct dyn_preload_call *call) {
  return call && call->depth > 0 && call->looked ? call->inGraph : dyn_told_in_graph(comm, call);
}

#endif

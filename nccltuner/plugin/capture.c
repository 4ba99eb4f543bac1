/* SPDX-License-Identifier: Apache-2.0
 *
 * How calls get their times, and who keeps out of CUDA graphs.
 *
 * With the preload library in the process CUDA events time the calls that go through it (preload/probe.c); nothing of
 * that goes into a graph, and NCCL is asked for Coll events alone. A communicator whose calls go another way has no times
 * (DYN_RANK_NO_TIMES), which hurts nobody else. Without the library no call has times.
 *
 * NCCL's own kernel times are there only where DYNAMICCL_KERNEL_EVENTS asks for them, in place of events, to hold the one
 * against the other: with 2.28.9 on 4x H200 asking for them hung ncclCommDestroy (after graphs, after a split that shares
 * resources, after an abort), 2.32 loses count of them, and a tree's miss the way down. All below is about them.
 *
 * KernelCh in the activation mask while a graph is captured makes NCCL put host work into the graph, which then replays
 * two to five times slower for ever (H200: AllReduce 1 KiB 9.2 to 40 us). NCCL copies the mask at the start of each API
 * call (preload/calls.c says where), before the GroupApi and CollApi events that say graphCaptured; ABIs before v5 never
 * say it. So nothing that a plugin alone can do protects the first captured call.
 *
 * And KernelCh may hang a program at its end. NCCL waits for the times of its n-th work of a channel in slot n % 64, by
 * the host's count, and the kernel leaves them by the GPU's count. A replayed graph counts on the GPU alone; from then
 * on the times of a work with KernelCh come late, are another work's, or never come, and ncclCommDestroy waits for NCCL's
 * proxy thread, which waits for them (4x H200, NCCL 2.28.9: docs/design.md, decision 9). So nobody gets KernelCh who did
 * not ask for it with DYNAMICCL_KERNEL_EVENTS=1, and even then only
 *   - when the preload library is in the process and all of the program's NCCL calls go through it: its guards keep
 *     KernelCh out of captured calls (mask.h), whatever window is open and whatever other threads do; or
 *   - when DYNAMICCL_NO_GRAPHS is set: the program promises to capture no graphs.
 * Else kernels have no times: stored choices are used, nothing is explored (DYN_RANK_NO_TIMES tells the daemon).
 * v1 and v2 have no KernelCh; there nothing is refused.
 *
 * Do all calls go through it? A library may call the functions that it found with dlsym in a libnccl of its own, beside
 * another (preload/lookup.c), or have NCCL linked into itself. Such a communicator was not announced by the preload, which shows before its
 * first call; failed inits leave announcements over, so each API event is held against the call that its thread is in
 * as well. One that went past the preload, or a broken promise, ends KernelCh in this process: a guard that never leaves.
 * Several copies of NCCL in one process have a mask each; all but the first copy's go without KernelCh, never with it.
 * A chained profiler's KernelCh is its user's own wish and stays: it would be there without us as well.
 *
 * From NCCL 2.32 on a call without KernelCh makes NCCL lose count of its communicator's kernel times (profiler.c). That
 * is so of a captured call's communicator, and of no other one that works on: NCCL's counts belong to a communicator,
 * and a call that another thread made while a guard was up is known by dyn_call_kept; only if it cannot be proven to
 * have found KernelCh is its communicator not sampled again. Neither v7's KernelCh nor its API events are ever off
 * otherwise, so each work is looked at.
 */
#include "profiler.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "nccl_env.h"

#define NEEDS \
  "start the program with `dynamiccld run`, which sets LD_PRELOAD=.../libdynamiccl.so, or, with " \
  "DYNAMICCL_KERNEL_EVENTS=1 (docs/design.md, decision 9), set DYNAMICCL_NO_GRAPHS=1 in one that captures no CUDA graphs"

/* Ends kernel times for this process: stored choices go on. False: they had ended. */
static bool end_times(struct dyn_process *process) {
  if (atomic_exchange(&process->refused, ncclProfileKernelCh | ncclProfileProxyOp) != 0) return false;
  struct dyn_mask_words words = dyn_process_words(process);
  dyn_guard_enter(&words); /* and never leaves: an update of another thread that began before cannot undo it */
  dyn_mask_update(process, 0);
  return true;
}

static void refuse(struct dyn_process *process, dyn_logger log, const char *why) {
  if (end_times(process)) dyn_say(log, DYN_LOG_WARN, "%s: a daemon's stored choices are used, nothing is explored; " NEEDS, why);
}

#define STORED_ALONE "a daemon's stored choices are used, nothing is measured and no kernel of ours runs; "

/* What hands on NCCL's variables and not the loader's, as ssh launchers and Ray do, or puts another library into LD_PRELOAD, as scripts and
 * SGLang's memory saver do, leaves a process with half of us. */
static void miss_preload(dyn_logger log, const struct dyn_preload *found) {
  const char *now = getenv("LD_PRELOAD");
  if (found != NULL)
    dyn_say_why(log, DYN_LOG_WARN, "the libdynamiccl.so of this process is of another release than this plugin: " STORED_ALONE "install one release, in one folder");
  else if (now != NULL && strstr(now, "libdynamiccl.so") != NULL)
    dyn_say_why(log, DYN_LOG_WARN, "libdynamiccl.so is in LD_PRELOAD and this NCCL cannot see it: " STORED_ALONE "either the loader could not load it, and has said so, "
                "or the program loads NCCL by dlmopen");
  else
    dyn_say_why(log, DYN_LOG_WARN, "libdynamiccl.so is not in this process: " STORED_ALONE "whatever starts ranks (a script, Ray, ssh) has to hand on all variables that "
                "`dynamiccld run` sets and `dynamiccld env` prints; here LD_PRELOAD is %s", now == NULL || *now == '\0' ? "not set" : now);
}

static const char *what_is_missing(const struct dyn_process *process, int version) {
  if (!dyn_switched_on("DYNAMICCL_KERNEL_EVENTS")) return "timing calls needs a driver of CUDA 12.0 or newer";
  if (process->promised) return NULL;
  if (process->preload == NULL) return "CUDA graphs would be captured with kernel events in them";
  if (version >= DYN_HOLD_VERSION && nccl_is_on("NCCL_ENQUEUE_REARCH_ENABLE"))
    return "NCCL_ENQUEUE_REARCH_ENABLE moves what the preload library watches to another place";
  return NULL;
}

/* With an id, that is; without, no choice is known to be of all ranks, and nothing is tuned. */
static void time_by_events(struct dyn_process *process, int version) {
  struct dyn_preload *preload = process->preload;
  process->eventTimed = 1;
  atomic_store(&preload->tell, version >= 5 ? ncclProfileCollApi : 0);
  atomic_store(&process->refused, ncclProfileKernelCh | ncclProfileProxyOp);
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = process->ring;
  process->lease = ++preload->lease;
  pthread_mutex_unlock(&preload->roundLock);
}

static void decide(struct dyn_process *process, int *mask, int version, dyn_logger log) {
  struct dyn_preload *found = dlsym(RTLD_DEFAULT, DYN_PRELOAD_SYMBOL);
  process->preload = found != NULL && found->version == DYN_PRELOAD_VERSION ? found : NULL;
  process->promised = dyn_switched_on("DYNAMICCL_NO_GRAPHS");
  process->mask = (atomic_int *)mask; /* one int of NCCL's for all communicators */
  if (process->preload != NULL) atomic_store(&process->preload->mask, process->mask);
  int events = process->preload != NULL && version >= 4 && !dyn_switched_on("DYNAMICCL_KERNEL_EVENTS");
  if (events && process->preload->can_time()) {
    time_by_events(process, version);
    return;
  }
  if (version >= 3 && process->preload == NULL && !dyn_switched_on("DYNAMICCL_KERNEL_EVENTS")) {
    if (end_times(process)) miss_preload(log, found);
    return;
  }
  const char *why = version < 3 ? NULL : what_is_missing(process, version);
  if (why != NULL) refuse(process, log, why);
}

/* Whether the program asked for this communicator through the preload library. */
static int announced(struct dyn_preload *preload) {
  int left = atomic_load(&preload->announced);
  while (left > 0 && !atomic_compare_exchange_weak(&preload->announced, &left, left - 1)) {
  }
  return left > 0;
}

int dyn_capture_open(struct dyn_process *process, int *mask, int version, dyn_logger log) {
  if (process->mask == NULL) decide(process, mask, version, log);
  if (process->preload == NULL || announced(process->preload)) return 0;
  if (!process->eventTimed && version >= 3 && !process->promised)
    refuse(process, log, "a communicator was made past the preload library");
  if (process->eventTimed)
    dyn_say_why_once(log, DYN_LOG_INFO, "a communicator was made past libdynamiccl.so, by another NCCL of this process than the one that it goes on to, or one "
                     "that was loaded by itself (dlmopen, RTLD_DEEPBIND): " STORED_ALONE "let the program use one NCCL");
  return process->eventTimed;
}

void dyn_capture_close(struct dyn_process *process) {
  struct dyn_mask_words words = dyn_process_words(process);
  atomic_store(&process->heldMask, 0);
  atomic_store(words.tell, 0);
  dyn_mask_update(process, 0);
  if (atomic_exchange(&process->refused, 0) != 0 && !process->eventTimed) dyn_guard_leave(&words);
  if (process->eventTimed) { /* behind this nobody else touches the ring */
    atomic_store(&process->preload->timing, 0);
    dyn_watch_forget(&process->preload->watched, NULL);
    pthread_mutex_lock(&process->preload->roundLock);
    process->preload->ring = NULL;
    pthread_mutex_unlock(&process->preload->roundLock);
  }
  process->eventTimed = 0;
  if (process->preload != NULL) atomic_store(&process->preload->mask, NULL);
  process->mask = NULL;
}

/* Whether the call being made goes into a CUDA graph. The preload library knows of a call in its own thread; of one that is
 * made for a group or a communicator that does not block, perhaps in another thread, NCCL told when it was asked for:
 * where it was captured the library's guard saw to that (mask.h), and here it is seen to that NCCL tells of later calls,
 * too, so that its last word is true. */
bool dyn_told_in_graph(struct dyn_comm *comm, const struct dyn_preload_call *call) {
  struct dyn_process *process = comm->process;
  int told = __atomic_load_n(&comm->captured, __ATOMIC_RELAXED);
  if (!call) return told;
  int tell = atomic_load_explicit(&process->preload->tell, memory_order_relaxed);
  if ((atomic_load_explicit(&process->heldMask, memory_order_relaxed) & tell) != tell) {
    atomic_fetch_or(&process->heldMask, tell);
    dyn_mask_update(process, dyn_daemon_beats(dyn_member_of(comm)));
  }
  return told;
}

int dyn_capture_now(const struct dyn_process *process) {
  return process->preload != NULL && process->preload->call()->captured;
}

int dyn_capture_note(struct dyn_context *context, int captured) {
  struct dyn_process *process = context->process;
  struct dyn_comm *comm = context->comm;
  dyn_logger log = comm == NULL ? NULL : comm->log;
  if (comm != NULL) __atomic_store_n(&comm->captured, captured, __ATOMIC_RELAXED);
  if (process->eventTimed) {
    if (comm != NULL && process->preload->call()->depth == 0) __atomic_store_n(&comm->past, 1, __ATOMIC_RELAXED);
    return 0;
  }
  if (atomic_load_explicit(&process->refused, memory_order_relaxed)) return 0;
  const struct dyn_preload_call *call = process->preload == NULL ? NULL : process->preload->call();
  int guarded = call != NULL && call->depth > 0 && (!captured || call->captured);
  if (!guarded && process->promised) {
    if (captured) refuse(process, log, "DYNAMICCL_NO_GRAPHS is set and a CUDA graph was captured");
    return !captured;
  }
  if (!guarded) {
    refuse(process, log, "an NCCL call went past the preload library");
    return 0;
  }
  struct dyn_mask_words words = dyn_process_words(process);
  int kept = !captured && call->looked && dyn_call_kept(&words, call->before, ncclProfileKernelCh);
  if (!kept && context->version >= DYN_HOLD_VERSION) atomic_store(&context->miscounted, 1);
  return kept;
}

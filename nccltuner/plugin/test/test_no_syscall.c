/* SPDX-License-Identifier: Apache-2.0
 *
 * A million choices while plans change, in processes that the kernel kills at any system call but exit, with every
 * allocation and every look at the clock counted: getCollInfo makes none. The control is a process that makes one system call and is killed.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0x5ecc0ull
#define RANKS 2
#define CALLS 1000000
#define MIN_PLANS 20 /* the run goes on until so many came into force ... */
#define MAX_CALLS (200ull * CALLS) /* ... within this bound */

struct result {
  uint64_t calls, plans, tuned, timed, allocations, clocks;
};
static struct result *results;
static volatile uint64_t allocations;

/* glibc's own names, so that these count what anybody in the process allocates. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) { return allocations++, __libc_malloc(n); }
void *calloc(size_t k, size_t n) { return allocations++, __libc_calloc(k, n); }
void *realloc(void *p, size_t n) { return allocations++, __libc_realloc(p, n); }

/* Which is no system call. */
static volatile uint64_t clocks;
int clock_gettime(clockid_t which, struct timespec *now) { return clocks++, (int)syscall(SYS_clock_gettime, which, now); }

static void forbid_system_calls(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog filter = {sizeof program / sizeof *program, program};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0, "this kernel has no seccomp filters");
}

/* Half of the ranks speak v5: the entry points are separate code. */
static int get_coll_info(int rank, void *context, int collective, size_t bytes, float *costs, int *channels) {
  if (rank % 2)
    return ncclTunerPlugin_v5.getCollInfo(context, collective, bytes, 1, (float **)costs, 7, 3, rank, channels);
  return ncclTunerPlugin_v6.getCollInfo(context, collective, bytes, 1, (float **)costs, 7, 3, rank, channels);
}

static struct dyn_timed timed;
static struct dyn_preload_call call = {.depth = 1, .timed = &timed};
static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}

static void rank_process(int rank) {
  struct result result = {0};
  void *context = NULL;
  int mask = 0;
  /* With a profiler half: its decisions and the sampling switch are part of the path. */
  struct dyn_comm *comm = dyn_comm_open(COMM_ID, RANKS, 1, rank, test_log);
  dyn_process_ref();
  dyn_process_get(test_log)->mask = (atomic_int *)&mask;
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, RANKS, 1, test_log, NULL, NULL) == 0, "init");
  check(context == comm && comm->record, "not joined: %s", test_last_message());
  /* And as if every call were timed by CUDA events. */
  static struct dyn_preload preload = {.call = this_call, .about = about};
  dyn_process_get(test_log)->preload = &preload;
  dyn_process_get(test_log)->eventTimed = 1;
  if (rank % 2 == 0) __atomic_store_n(&dyn_process_get(test_log)->ring->wantMask, 2, __ATOMIC_RELAXED);
  forbid_system_calls();
  uint64_t before = allocations, clocksBefore = clocks, version = 0;
  while (result.calls < CALLS || (result.plans < MIN_PLANS && result.calls < MAX_CALLS)) {
    float costs[21];
    int channels = 0;
    comm->captured = result.calls % 3 == 0; /* into a ring that nobody reads: until it is full, and then */
    for (int i = 0; i < 21; i++) costs[i] = i == 5 ? -1.0f : 1.0f;
    timed.asked = 0;
    int failed = get_coll_info(rank, context, (int)(result.calls % 6), (size_t)1 << result.calls % 40, costs,
                               &channels);
    for (int i = 0; i < 21; i++) result.tuned += costs[i] == 0.0f;
    if (comm->plan.version != version) result.plans++, version = comm->plan.version;
    result.calls++;
    result.timed += timed.asked;
    if (failed) _exit(1);
  }
  result.allocations = allocations - before;
  result.clocks = clocks - clocksBefore;
  results[rank] = result;
  _exit(0);
}

int main(void) {
  struct publisher p = {0};
  struct dyn_plan plan;
  uint64_t random = test_seed();
  int status, living = RANKS;
  test_directory();
  results = mmap(NULL, sizeof *results * RANKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(results != MAP_FAILED, "mmap");

  pid_t control = fork();
  if (control == 0) {
    forbid_system_calls();
    syscall(SYS_getppid);
    _exit(0);
  }
  check(waitpid(control, &status, 0) == control && WIFSIGNALED(status), "the control process was not killed");

  for (int i = 0; i < RANKS; i++)
    if (fork() == 0) rank_process(i);
  while (living > 0) {
    pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a rank ended with status %x: a system call in "
            "getCollInfo?", status);
      living--;
    }
    if (p.record || publisher_open(&p, COMM_ID)) {
      plan_random(&plan, &random, (uint32_t)test_random(&random));
      publisher_publish(&p, &plan);
    }
    usleep(900);
  }
  test_remove_directory();
  for (int i = 0; i < RANKS; i++) {
    struct result *r = &results[i];
    printf("{\"noSyscall\":{\"rank\":%d,\"calls\":%lu,\"plans\":%lu,\"tuned\":%lu,\"timed\":%lu,\"allocations\":%lu,"
           "\"systemCalls\":0}}\n", i, r->calls, r->plans, r->tuned, r->timed,
           r->allocations);
    check(r->allocations == 0, "getCollInfo allocated");
    check(r->clocks == 0, "getCollInfo looked at the clock");
    check(r->plans >= MIN_PLANS && r->tuned > 0 && r->timed > 0, "no plan was run, or no call timed");
  }
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a communicator that has GIN: the host's part of it (kernels/host) over the stand-ins for CUDA's driver and NCCL,
 * which run the kernels for real. Each story is played by as many processes as there are ranks.
 */
#ifndef DYN_GIN_RIG_H
#define DYN_GIN_RIG_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../kernels/host/gin_state.h"
#include "../../../kernels/host/host.h"
#include "../../plugin/datatype.h"
#include "../../worker/cuda_api.h"
#include "meeting.h"
#include "patience.h"

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: rank %d: %s:", __FILE__, __LINE__, rank, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      _exit(1); \
    } \
  } while (0)

/* Looks only at what no other thread has but kernels, of which the thread sanitizer knows nothing. */
#define OF_ONE_THREAD __attribute__((no_sanitize("thread")))

enum { MAX_RANKS = 6, STREAMS = 3, SLOTS = 4, FLOAT32 = 7, SUM = 0 };
#define MOST ((size_t)200000) /* elements of a part: several rounds of AllToAll */
/* contexts: that the CTAs share; 0: all. */
#define GIN(backend, ctas, contexts) ((uint32_t)(contexts) << DYN_ACTION_CONTEXTS_SHIFT | DYN_PATH_GIN | (uint32_t)(backend) << DYN_ACTION_BACKEND_SHIFT | (uint32_t)(ctas) << DYN_ACTION_CHANNELS_SHIFT)

static int rank = -1, numRanks, numNodes = 1; /* as many ranks on each, in a row */
static const char *driverPath, *ncclPath;
static struct shared {
  struct meeting meeting;
  atomic_int gone;
  uint8_t id[128];
  struct dyn_offer offers[MAX_RANKS];
} *shared;
static struct dyn_rank self; /* where the state is told */
static inline uint32_t told(void) { return __atomic_load_n(&self.gin, __ATOMIC_ACQUIRE); }
static struct dyn_lsa *lsa;
static bool elsewhere; /* of each rank's peers, that are on other hosts, no process is known */
static int sharing;    /* multiprocessors of the GPU that all ranks share; 0: each has its own. elsewhere: those of a node */
static int allowed;    /* CTAs that rank 1's program allows; 0: it does not say */
static CUstream streams[STREAMS];
static float *in[SLOTS], *out[SLOTS];

static struct cuda {
#define MEMBER(name, arguments) CUresult(*name) arguments;
  CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
} cuda;

static inline void meet(void) { meet_all(&shared->meeting, numRanks); }

static inline void load(void) {
  CUcontext context;
  void *driver = dlopen(driverPath, RTLD_NOW | RTLD_GLOBAL), *nccl = dlopen(ncclPath, RTLD_NOW | RTLD_GLOBAL);
  CHECK(driver != NULL && nccl != NULL, "%s", dlerror());
#define FIND(name, arguments) CHECK((*(void **)&cuda.name = dlsym(driver, #name)) != NULL, #name);
  CUDA_FUNCTIONS(FIND)
#undef FIND
  CHECK(cuda.cuInit(0) == 0 && cuda.cuDevicePrimaryCtxRetain(&context, rank) == 0 && cuda.cuCtxSetCurrent(context) == 0);
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == 0);
  for (int i = 0; i < SLOTS; i++) {
    CUdeviceptr a, b;
    CHECK(cuda.cuMemAlloc_v2(&a, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0 && cuda.cuMemAlloc_v2(&b, (MOST * MAX_RANKS + 1) * sizeof(float)) == 0);
    in[i] = (float *)(uintptr_t)a;
    out[i] = (float *)(uintptr_t)b;
  }
}

/* As the plugin does it, behind NCCL's making of the program's communicator. */
static inline bool make_gin(void) {
  memset(&self, 0, sizeof self);
  lsa = dyn_gin_offer(7, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  CHECK(lsa != NULL, "no offer");
  if (rank == 0) CHECK(dyn_gin_id(shared->id), "no id");
  meet();
  CHECK(dyn_lsa_able(lsa, &(struct dyn_work){.collective = DYN_ALL_REDUCE, .count = 1, .datatype = FLOAT32}) == 0, "nothing is there yet");
  struct dyn_offer offers[MAX_RANKS];
  memcpy(offers, shared->offers, sizeof offers);
  for (int r = 0; r < numRanks; r++)
    if (sharing > 0) offers[r].gpu[0] = 1, offers[r].multiprocessors = (uint32_t)sharing;
  if (numRanks > 1) offers[1].mostCtas = (uint32_t)allowed;
  for (int r = 0, each = numRanks / numNodes; r < numRanks; r++)
    if (elsewhere && (sharing == 0 ? r != rank : r / each != rank / each)) offers[r] = (struct dyn_offer){0};
  return dyn_gin_make(lsa, offers, shared->id, &self);
}

/* Before the first rank: a file of kernels, which the caller removes, and memory that ranks share. */
static inline void write_kernels(char kernels[4096]) {
  snprintf(kernels, 4096, "%s/gin-XXXXXX", getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR"));
  int fd = mkstemp(kernels);
  CHECK(fd >= 0 && write(fd, "\x50\xed\x55\xba", 4) == 4, "%s", kernels); /* all that the stand-in looks at */
  setenv("DYNAMICCL_GIN_KERNELS", kernels, 1);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
}

/* The last rank's process ends with that status. */
static inline void play_but(const char *name, int ranks, void (*story)(void), int last) {
  pid_t children[MAX_RANKS];
  numRanks = ranks;
  memset(shared, 0, sizeof *shared);
  for (rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] > 0) continue;
    alarm(rank_hangs_s());
    char host[16];
    snprintf(host, sizeof host, "node%d", rank / (ranks / numNodes));
    setenv("NCCL_HOSTID", host, 1);
    story();
    _exit(0);
  }
  rank = -1;
  for (int r = 0; r < ranks; r++) {
    int status;
    CHECK(waitpid(children[r], &status, 0) == children[r] && status == (r == ranks - 1 ? last << 8 : 0), "%s of %d: rank %d: status %x", name, ranks, r, status);
  }
}

static inline void play(const char *name, int ranks, void (*story)(void)) { play_but(name, ranks, story, 0); }
static inline void play_on(int nodes, const char *name, int ranks, void (*story)(void)) {
  numNodes = nodes;
  play(name, ranks, story);
  numNodes = 1;
}

OF_ONE_THREAD static inline uint64_t random_of(uint64_t seed) { /* splitmix64 */
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* For a step of making GIN, or the probe's signals: seconds. Shortly where they do not come, else as long as a busy machine may need. */
#define IN_VAIN "2"
#define AS_EVER "60"
static inline void steps_wait_s(const char *seconds) { setenv("DYNAMICCL_GIN_WAIT_S", seconds, 1); }

#endif

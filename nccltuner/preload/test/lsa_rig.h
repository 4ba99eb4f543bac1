/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a communicator whose calls run as kernels: the preload library in front of a fake NCCL, and the fake GPU that
 * runs the kernels for real. This program plays the plugin: it binds the communicator and chooses.
 */
#ifndef DYN_LSA_RIG_H
#define DYN_LSA_RIG_H

#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../kernels/host/host.h"
#include "../../worker/cuda_api.h"
#include "../preload.h"
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
#define MAX_RANKS 4
#define COMM_ID 0x1d
#define COMM ((uintptr_t)0x6000)
#define OTHER_COMM ((uintptr_t)0x7000) /* has no kernels */
#define THIRD_COMM ((uintptr_t)0x7100)
#define LSA(kernel, ctas) (DYN_PATH_LSA | (uint32_t)(kernel) << DYN_ACTION_ALGO_SHIFT | (uint32_t)(ctas) << DYN_ACTION_CHANNELS_SHIFT)

static int rank = -1, numRanks, ranksAGpu = 1;
static uint32_t allowed; /* CTAs, by the program of the last rank; 0: it does not say */
static const char *folder, *driverPath;
static struct shared {
  struct meeting meeting;
  struct dyn_offer offers[MAX_RANKS];
} *shared;

static struct cuda {
#define MEMBER(name, arguments) CUresult(*name) arguments;
  CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
} cuda;

static struct dyn_preload *preload;
static struct fake_call *(*last_call)(void); /* of the thread that asks */
static struct fake_call *fake;
static struct dyn_lsa *lsa;
static uint32_t planned; /* action of the next call */
static unsigned asked;   /* times that the chooser was asked, looks not counted */
static bool capturing;   /* what it is asked about goes into a CUDA graph, which the library tells, in a group or not */
static uint64_t askedBytes;
static bool sampled;     /* the communicator: calls that are timed are described */

typedef int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static void *program; /* opened once: the thread sanitizer reads all libraries again each time */

static inline function find(const char *name) {
  function f = (function)dlsym(program, name); /* in the order of a program that is linked with NCCL */
  CHECK(f != NULL, "%s", name);
  return f;
}

static inline void meet(void) { meet_all(&shared->meeting, numRanks); }

/* As the plugin does it of a call that counts. */
static inline void describe_as(struct dyn_timed *timed, uint32_t action) {
  if (!sampled || timed == NULL) return;
  timed->asked++;
  timed->lease = preload->lease;
  timed->sample = (struct dyn_sample){.commId = COMM_ID, .seq = asked, .rank = rank, .nRanks = (uint16_t)numRanks, .action = action, .flags = DYN_SAMPLE_EVENT_TIMED};
}
static inline void describe(uint32_t action) { describe_as(preload->call()->timed, action); }

static inline uint32_t choose(void *chooser, int collective, uint64_t bytes, uint32_t able) {
  CHECK(chooser == &planned && collective >= 0 && collective < DYN_NUM_COLLECTIVES);
  askedBytes = bytes;
  if (able & DYN_ABLE_LOOK) return planned != 0; /* in a group no call, and so no capture, is known yet */
  asked++;
  const struct dyn_preload_call *call = preload->call();
  CHECK(call->depth > 0 && call->looked && call->inGraph == capturing, "whether call %u is captured", asked);
  bool runs = planned != 0 && able >> (planned >> DYN_ACTION_ALGO_SHIFT & 15) & 1;
  if (runs) describe(planned);
  return runs ? planned : 0;
}

/* Inside of a call, as the plugin does it when NCCL asks. */
static inline int do_bind(void) {
  CHECK(preload->device->bind(lsa, &planned, choose), "in a call");
  return 0;
}
static inline int succeed(void) { return 0; }

static inline void load(void) {
  char path[4096];
  program = dlopen(NULL, RTLD_LAZY);
  preload = dlsym(RTLD_DEFAULT, DYN_PRELOAD_SYMBOL);
  CHECK(preload != NULL && preload->version == DYN_PRELOAD_VERSION, "not preloaded");
  snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
  void *nccl = dlopen(path, RTLD_NOW), *driver = dlopen(driverPath, RTLD_NOW);
  CHECK(nccl != NULL && driver != NULL, "%s", dlerror());
#define FIND(name, arguments) CHECK((*(void **)&cuda.name = dlsym(driver, #name)) != NULL, #name);
  CUDA_FUNCTIONS(FIND)
#undef FIND
  atomic_store(&preload->mask, (atomic_int *)dlsym(nccl, "ncclProfilerEventMask"));
  last_call = (struct fake_call * (*)(void)) dlsym(nccl, "fake_last_call");
  fake = last_call();
  fake->inside = succeed;
  CUcontext context;
  CHECK(cuda.cuInit(0) == 0 && cuda.cuDevicePrimaryCtxRetain(&context, rank / ranksAGpu) == 0 && cuda.cuCtxSetCurrent(context) == 0);
}

/* As NCCL and the plugin make a communicator. */
static inline void make_as(uint64_t id) {
  lsa = preload->device->offer(id, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  CHECK(lsa != NULL, "no offer");
  preload->device->gpu(shared->offers[rank].gpu, &shared->offers[rank].multiprocessors);
  shared->offers[rank].mostCtas = rank == numRanks - 1 ? allowed : 0;
  meet();
  CHECK(preload->device->open(lsa, shared->offers), "not opened");
  CHECK(!preload->device->bind(lsa, &planned, choose), "outside of a call");
  meet();
}
static inline void make(void) { make_as(COMM_ID); }

/* Before the first rank: a file of kernels, which the caller removes, and memory that ranks share. */
static inline void write_kernels(char kernels[4096]) {
  snprintf(kernels, 4096, "%s/kernels-XXXXXX", getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR"));
  int fd = mkstemp(kernels);
  CHECK(fd >= 0 && write(fd, "\x50\xed\x55\xba", 4) == 4, "%s", kernels); /* all that the fake GPU looks at */
  setenv("DYNAMICCL_KERNELS", kernels, 1);
  setenv("DYNAMICCL_SCRATCH_MIB", "8", 1);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
}

/* The same, of a program with these two arguments. */
static inline void begin_program(int argc, char **argv, char kernels[4096]) {
  CHECK(argc == 3, "FOLDER LIBCUDA");
  folder = argv[1];
  driverPath = argv[2];
  write_kernels(kernels);
}

/* Runs it in as many processes, each a rank. */
static inline void play(const char *name, int ranks, void (*story)(void)) {
  pid_t children[MAX_RANKS];
  numRanks = ranks;
  memset(shared, 0, sizeof *shared);
  for (rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] > 0) continue;
    alarm(rank_hangs_s());
    load();
    story();
    _exit(0);
  }
  rank = -1;
  for (int r = 0; r < ranks; r++) {
    int status;
    CHECK(waitpid(children[r], &status, 0) == children[r] && status == 0, "%s of %d: rank %d: status %x", name, ranks, r, status);
  }
}

static inline uint64_t random_of(uint64_t seed) { /* splitmix64 */
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

#endif

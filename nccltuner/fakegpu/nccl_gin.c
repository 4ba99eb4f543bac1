/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL 2.28.9 and 2.32.3 have of GIN (kernels/host/nccl_gin.h): windows, device communicators, and communicators that do not
 * block, whose steps run in a thread of their own, while ncclDevCommCreate and ncclCommWindowRegister give ncclSuccess as NCCL's
 * do, so that one which waits for a rank for ever is only never done. FAKEGPU_GIN says what goes wrong, FAKEGPU_GIN_RANK on which
 * rank (all), FAKEGPU_GIN_TYPE with which type alone (all):
 *   none     there is no GIN: ncclDevCommCreate fails, and the others wait in it
 *   silent   it starts, and this rank's signals never arrive
 *   dies     the process ends in ncclDevCommCreate
 * FAKEGPU_GIN_TYPES are those that 2.32.3 has here, by their numbers, the default first ("2"); 2.28.9 has Proxy.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gin_fake.h"
#include "nccl_fake.h"

CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);

static int is_or_any(const char *name, int number) {
  const char *text = getenv(name);
  return text == NULL || *text == '\0' || atoi(text) == number;
}

static int goes_wrong(const struct ncclComm *comm, int type, const char *how) {
  const char *fault = getenv("FAKEGPU_GIN");
  return fault != NULL && strcmp(fault, how) == 0 && is_or_any("FAKEGPU_GIN_RANK", comm->rank.rank) && is_or_any("FAKEGPU_GIN_TYPE", type);
}

/* The index of the backend, -1: there is none of the type; any: the first. */
static int backend_of(int type) {
  const char *types = getenv("FAKEGPU_GIN_TYPES");
  if (types == NULL || *types == '\0') types = "2";
  if (type == DYN_NCCL_GIN_ANY) return 0;
  const char *found = type > 0 && type < 10 ? strchr(types, '0' + type) : NULL;
  return found == NULL ? -1 : (int)(found - types);
}

static int is_new(void) { return nccl_version() >= 23203; }

/* ---- steps ---- */

struct step {
  struct ncclComm *comm;
  ncclResult_t (*run)(const struct step *step);
  int nRanks, rank; /* of a communicator that is made */
  ncclUniqueId id;
  char name[64];
  char *memory; /* of a window */
  struct fake_window **window;
  union dyn_nccl_dev_comm *device;
  int type, contexts, signals, counters; /* asked for */
};

static void *run_step(void *argument) {
  struct step *step = argument;
  struct ncclComm *comm = step->comm;
  cuCtxSetCurrent(comm->context);
  ncclResult_t result = step->run(step);
  free(step);
  atomic_store(&comm->busy, result);
  return NULL;
}

static ncclResult_t begin(struct ncclComm *comm, const struct step *step) {
  struct step *own = malloc(sizeof *own);
  pthread_t thread;
  if (own == NULL) return nccl_fail(ncclSystemError, "out of memory");
  *own = *step;
  own->comm = comm;
  atomic_store(&comm->busy, NCCL_IN_PROGRESS);
  if (pthread_create(&thread, NULL, run_step, own) != 0 || pthread_detach(thread) != 0) return nccl_fail(ncclSystemError, "out of threads");
  return 0;
}

FAKEGPU_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  *error = atomic_load(&comm->busy);
  return 0;
}

/* ---- communicators ---- */

static ncclResult_t make(const struct step *step) {
  ncclComm_t comm = step->comm;
  return nccl_comm_make(&comm, step->nRanks, &step->id, step->rank, step->name[0] == '\0' ? NULL : step->name);
}

FAKEGPU_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int nRanks, ncclUniqueId id, int rank, const struct dyn_nccl_config *config) {
  *out = NULL;
  if (config == NULL) return nccl_comm_make(out, nRanks, &id, rank, NULL);
  if (config->magic != 0xcafebeefu) return nccl_fail(ncclInvalidArgument, "a config that nobody initialised");
  struct step step = {.run = make, .nRanks = nRanks, .rank = rank, .id = id};
  if (config->commName != NULL) strncpy(step.name, config->commName, sizeof step.name - 1);
  if (config->blocking != 0) return nccl_comm_make(out, nRanks, &id, rank, config->commName == NULL ? NULL : strdup(config->commName));
  *out = calloc(1, sizeof **out);
  if (*out == NULL) return nccl_fail(ncclSystemError, "out of memory");
  cuCtxGetCurrent(&(*out)->context);
  ncclResult_t result = begin(*out, &step);
  return result != 0 ? result : NCCL_IN_PROGRESS;
}

/* ---- memory that all ranks have ---- */

struct shown { /* of a rank, in the memory in which ranks meet */
  CUipcMemHandle handle;
  uint64_t at;
  int pid, contexts; /* contexts: of a device communicator, asked for */
};

/* contexts: which all ranks have to ask for alike: NCCL has no word for it, and its plugins would connect other queues. */
static ncclResult_t share(struct ncclComm *comm, char *own, char **of, int contexts) {
  int n = comm->plan->nRanks, failed = 0;
  struct shown *all = (struct shown *)(comm->shared + (HOST_BYTES + STEPS_BYTES) * n), *mine = &all[comm->rank.rank];
  _Static_assert(sizeof(struct shown) <= SHOWN_BYTES, "it has room");
  nccl_barrier(comm);
  failed = cuIpcGetMemHandle(&mine->handle, (CUdeviceptr)(uintptr_t)own) != 0;
  mine->at = (uintptr_t)own;
  mine->pid = getpid();
  mine->contexts = contexts;
  nccl_barrier(comm);
  for (int r = 0; r < n && !failed; r++) {
    CUdeviceptr address = (CUdeviceptr)all[r].at;
    if (all[r].pid != getpid()) failed = cuIpcOpenMemHandle_v2(&address, all[r].handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0;
    of[r] = (char *)(uintptr_t)address;
  }
  for (int r = 0; r < n; r++)
    if (all[r].contexts != contexts) failed = -1;
  nccl_barrier(comm);
  if (failed < 0) return nccl_fail(ncclInternalError, "ranks ask for different numbers of contexts");
  return failed ? nccl_fail(ncclUnhandledCudaError, "a rank's memory cannot be mapped") : 0;
}

static ncclResult_t make_window(const struct step *step) {
  struct fake_window *window = calloc(1, sizeof *window);
  if (window == NULL) return nccl_fail(ncclSystemError, "out of memory");
  ncclResult_t result = share(step->comm, step->memory, window->at, 0);
  if (result == 0) *step->window = window;
  return result;
}

/* On a communicator that blocks, which is a program's: what NCCL's own kernels need, and none of ours. */
static ncclResult_t register_window(struct ncclComm *comm, void *memory, size_t bytes, struct fake_window **window, int flags) {
  *window = NULL;
  if (memory == NULL || bytes == 0) return nccl_fail(ncclInvalidArgument, "invalid pointer %p / size %zu", memory, bytes);
  nccl_barrier(comm);
  for (int i = 0; i < MAX_WINDOWS && *window == NULL; i++) {
    if (comm->windows[i].bytes > 0) continue;
    comm->windows[i] = (struct ncclWindow){memory, bytes, flags};
    *window = (struct fake_window *)&comm->windows[i];
  }
  return *window != NULL ? 0 : nccl_fail(ncclInternalError, "the stand-in has room for %d windows", MAX_WINDOWS);
}

FAKEGPU_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, struct fake_window **window, int flags) {
  if (comm->context == NULL) return register_window(comm, memory, bytes, window, flags);
  if (comm->plan->nRanks > DYN_KERNEL_MAX_RANKS || bytes == 0 || flags != DYN_NCCL_WIN_SYMMETRIC) return nccl_fail(ncclInvalidArgument, "this window");
  return begin(comm, &(struct step){.run = make_window, .memory = memory, .window = window});
}

FAKEGPU_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, struct fake_window *window) {
  for (int i = 0; i < MAX_WINDOWS; i++) {
    if ((void *)window != &comm->windows[i]) continue;
    comm->windows[i].bytes = 0;
    return 0;
  }
  free(window);
  return 0;
}

/* ---- device communicators ---- */

/* As NCCL's (dev_runtime.cc): what divides all runs of ranks of one node. */
static int lsa_size(const struct ncclComm *comm) {
  int n = comm->plan->nRanks, size = 0;
  for (int r = 0, first = 0; r < n; r++) {
    if (r + 1 < n && strncmp(comm->shared + HOST_BYTES * r, comm->shared + HOST_BYTES * (r + 1), HOST_BYTES) == 0) continue;
    for (int run = r + 1 - first; run != 0;) {
      int rest = size % run;
      size = run;
      run = rest;
    }
    first = r + 1;
  }
  return size;
}

static void grant_old(const struct step *step, struct fake_gin *gin, int locals) {
  const struct ncclComm *comm = step->comm;
  step->device->v22809 = (struct dyn_nccl_dev_comm_22809){
      .rank = comm->rank.rank, .nRanks = comm->plan->nRanks, .lsaRank = comm->rank.rank % locals, .lsaSize = locals, .ginContextCount = (uint8_t)(step->contexts < FAKE_GIN_CONTEXTS ? step->contexts : FAKE_GIN_CONTEXTS),
      .ginTypes = {DYN_NCCL_GIN_PROXY, DYN_NCCL_GIN_PROXY}, .ginHandles = {gin, gin}, .ginSignalCount = step->signals, .ginCounterCount = step->counters};
}

/* A connection, with as many contexts as there are: 2.32.3 makes as many as it was asked for. */
static void grant_new(const struct step *step, struct fake_gin *gin, int locals) {
  const struct ncclComm *comm = step->comm;
  const char *types = getenv("FAKEGPU_GIN_TYPES");
  int type = step->type != DYN_NCCL_GIN_ANY ? step->type : types == NULL || *types == '\0' ? DYN_NCCL_GIN_PROXY : types[0] - '0';
  step->device->v23203 = (struct dyn_nccl_dev_comm_23203){
      .magic = DYN_NCCL_MAGIC, .version = 23203, .rank = comm->rank.rank, .nRanks = comm->plan->nRanks, .lsaRank = comm->rank.rank % locals, .lsaSize = locals,
      .ginConnectionCount = 1, .backendIndex = (uint8_t)backend_of(step->type), .ginNetDeviceTypes = {(uint8_t)type}, .ginHandles = {gin},
      .ginSignalCount = step->signals, .ginCounterCount = step->counters, .ginContextCount = (uint32_t)(step->contexts < FAKE_GIN_CONTEXTS ? step->contexts : FAKE_GIN_CONTEXTS), .ginConnectionStride = 1, .ginContextStride = 1,
      .ginStrongLegacySignals = true};
}

/* Of GDAKI as NCCL's, of Proxy shorter, so that who takes one for the other is found; that to itself, which nobody has to count, is the
 * shortest, and of all others one, on the last context. */
static void make_queues(const struct ncclComm *comm, int type, struct fake_gin *gin) {
  uint32_t depth = type == DYN_NCCL_GIN_GDAKI ? 128 : 64;
  for (int c = 0; c < FAKE_GIN_CONTEXTS; c++)
    for (int r = 0; r < comm->plan->nRanks; r++) gin->depths[c][r] = r == comm->rank.rank ? 1 : 2 * depth;
  gin->depths[FAKE_GIN_CONTEXTS - 1][(comm->rank.rank + 1) % comm->plan->nRanks] = comm->plan->nRanks > 1 ? depth : 1;
}

static ncclResult_t make_device(const struct step *step) {
  struct ncclComm *comm = step->comm;
  CUdeviceptr signals;
  struct fake_gin *gin = calloc(1, sizeof *gin);
  const size_t bytes = 64 << 10; /* less cannot be mapped by others */
  _Static_assert(FAKE_GIN_CONTEXTS * FAKE_GIN_SIGNALS * sizeof(uint64_t) <= 64 << 10, "all signals fit");
  if (goes_wrong(comm, step->type, "none")) return nccl_fail(ncclInvalidUsage, "GIN not supported.");
  if (goes_wrong(comm, step->type, "dies")) _exit(3);
  if (gin == NULL || cuMemAlloc_v2(&signals, bytes) != 0 || cuMemsetD8_v2(signals, 0, bytes) != 0) return nccl_fail(ncclSystemError, "out of memory");
  ncclResult_t result = share(comm, (char *)(uintptr_t)signals, (char **)gin->signals, step->contexts);
  gin->silent = goes_wrong(comm, step->type, "silent");
  make_queues(comm, step->type, gin);
  (is_new() ? grant_new : grant_old)(step, gin, lsa_size(comm));
  return result;
}

/* As NCCL's own checks of what a program asks for (dev_runtime.cc, gin_host.cc); a structure of 2.28.9 has neither size nor magic. */
static ncclResult_t read_new(const struct dyn_nccl_requirements_23203 *wants, struct step *step) {
  if (wants->size != sizeof *wants || wants->magic != DYN_NCCL_MAGIC || wants->version != 23203)
    return nccl_fail(ncclInvalidUsage, "ncclDevCommRequirements_t argument must be initialized via NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER");
  if (wants->ginConnectionType == 0 && (wants->ginSignalCount > 0 || wants->ginCounterCount > 0))
    return nccl_fail(ncclInvalidUsage, "User requested GIN resources but did not request GIN to be enabled!");
  if (backend_of(wants->ginType) < 0) return nccl_fail(ncclInternalError, "GIN: DevComm setup failed on all available backends");
  if (wants->useRuntimeVersion || wants->ginCustomStride != 1 || !wants->ginStrongSignalsRequired) return nccl_fail(ncclInvalidArgument, "not what the stand-in has");
  step->type = wants->ginType, step->contexts = wants->ginContextCount, step->signals = wants->ginSignalCount, step->counters = wants->ginCounterCount;
  return 0;
}

/* Whatever it is asked for. */
static ncclResult_t read_old(const struct dyn_nccl_requirements_22809 *wants, struct step *step) {
  const char *contexts = getenv("NCCL_GIN_NCONTEXTS");
  step->contexts = contexts == NULL ? DYN_GIN_MAX_CONTEXTS : atoi(contexts);
  step->type = DYN_NCCL_GIN_PROXY, step->signals = wants->ginSignalCount, step->counters = wants->ginCounterCount;
  return 0;
}

FAKEGPU_API ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *wants, union dyn_nccl_dev_comm *device) {
  struct step step = {.run = make_device, .device = device};
  ncclResult_t result = is_new() ? read_new(wants, &step) : read_old(wants, &step);
  if (result != 0) return result;
  if (comm->plan->nRanks > DYN_KERNEL_MAX_RANKS || step.signals > FAKE_GIN_SIGNALS || step.counters > FAKE_GIN_SIGNALS)
    return nccl_fail(ncclInvalidArgument, "more than the stand-in has");
  return begin(comm, &step);
}

FAKEGPU_API ncclResult_t ncclCommQueryProperties(ncclComm_t comm, struct dyn_nccl_properties_23203 *properties) {
  (void)comm;
  if (!is_new() || properties->magic != DYN_NCCL_MAGIC || properties->version != 23203 || properties->size != sizeof *properties)
    return nccl_fail(ncclInvalidUsage, "ncclCommProperties_t argument must be initialized via NCCL_COMM_PROPERTIES_INITIALIZER");
  for (int type = 0; type < 10; type++) properties->ginSupport[type] = type > 0 && backend_of(type) >= 0;
  return 0;
}

/* Signals stay: a peer may still have them mapped. */
FAKEGPU_API ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const union dyn_nccl_dev_comm *device) {
  (void)comm;
  free(is_new() ? device->v23203.ginHandles[0] : device->v22809.ginHandles[0]);
  return 0;
}

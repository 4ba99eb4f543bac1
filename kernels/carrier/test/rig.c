/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

int rank = -1, numRanks, quiet;
ncclNet_v11_t *net;
ncclGin_v11_t *gin;
struct shared *shared;
struct comm comm;
atomic_int warnings;
char lastWarning[512];

static struct { /* CUmemAllocationProp */
  int type, handles, locationType, locationId;
  void *none;
  unsigned char flags[8];
} prop = {.type = 1, .locationType = 1};

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuMemAlloc_v2)(uint64_t *, size_t);
static int (*cuMemCreate)(uint64_t *, size_t, void *, unsigned long long), (*cuMemAddressReserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
static int (*cuMemMap)(uint64_t, size_t, size_t, uint64_t, unsigned long long), (*cuMemSetAccess)(uint64_t, size_t, const void *, size_t);

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);
  CHECK(found != NULL, "%s", name);
  return found;
}

void meet(void) {
  int round = atomic_load(&shared->round);
  if (atomic_fetch_add(&shared->waiting, 1) == numRanks - 1) {
    atomic_store(&shared->waiting, 0);
    atomic_fetch_add(&shared->round, 1);
  }
  while (atomic_load(&shared->round) == round) usleep(50);
}

__attribute__((format(printf, 5, 6))) static void log_line(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  char text[512];
  va_list arguments;
  (void)flags;
  if (level != NCCL_LOG_WARN) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(lastWarning, text, sizeof text);
  atomic_fetch_add(&warnings, 1);
  if (!quiet) fprintf(stderr, "rank %d: %s:%d %s\n", rank, file, line, text);
}

void *device_memory(size_t bytes, int handles) {
  static const struct { int type, id, flags; } access = {1, 0, 3};
  uint64_t at, handle, whole = (bytes + (2 << 20) - 1) & ~(uint64_t)((2 << 20) - 1);
  if (handles == 2) {
    CHECK(cuMemAlloc_v2(&at, bytes) == 0);
    return (void *)(uintptr_t)at;
  }
  prop.handles = handles;
  prop.locationId = rank;
  CHECK(cuMemCreate(&handle, whole, &prop, 0) == 0 && cuMemAddressReserve(&at, whole, 0, 0, 0) == 0 && cuMemMap(at, whole, 0, handle, 0) == 0 &&
        cuMemSetAccess(at, whole, &access, 1) == 0);
  return (void *)(uintptr_t)at;
}

void begin(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
  CHECK(driver != NULL, "%s", dlerror());
#define FIND(name) *(void **)&name = find(driver, #name)
  FIND(cuInit), FIND(cuDevicePrimaryCtxRetain), FIND(cuCtxSetCurrent), FIND(cuMemAlloc_v2), FIND(cuMemCreate), FIND(cuMemAddressReserve), FIND(cuMemMap);
  FIND(cuMemSetAccess);
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, rank) == 0 && cuCtxSetCurrent(context) == 0);
  void *library = dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "%s", dlerror());
  net = find(library, "ncclNetPlugin_v11");
  gin = find(library, "ncclGinPlugin_v11");
}

/* ncclNetPluginInit, then the first lines of ncclGinConnectOnce. */
void initialise(void) {
  ncclNetProperties_v11_t props;
  void *netContext;
  int devices = 0;
  CHECK(net->init(&netContext, 7, NULL, log_line, NULL) == 0 && net->devices(&devices) == 0 && devices == 1);
  CHECK(net->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_HOST && strstr(props.name, "development only") != NULL);
  CHECK(gin->init(&comm.ginContext, 7, log_line) == 0 && gin->devices(&devices) == 0 && devices == 1);
  CHECK(gin->init(&comm.ginInstance, 7, log_line) == 0);
  CHECK(gin->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && NCCL_NET_MAX_REQUESTS * props.maxRecvs == QUEUE);
}

void connect_all(void) {
  void *handles[MAX_RANKS], *unused;
  for (int c = 0; c < CONTEXTS; c++) {
    void *listener;
    CHECK(gin->listen(comm.ginInstance, 0, shared->handles[rank], &listener) == 0);
    meet();
    for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
    CHECK(gin->connect(comm.ginContext, handles, numRanks, rank, listener, &comm.colls[c]) == 0);
    comm.signals[c] = device_memory(SIGNALS * sizeof(uint64_t), 0);
    CHECK(gin->regMrSym(comm.colls[c], comm.signals[c], SIGNALS * sizeof(uint64_t), NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO, &unused,
                        &comm.signalRegions[c]) == 0);
    comm.inlines[c] = calloc(MAX_RANKS * QUEUE, sizeof(uint64_t));
    CHECK(gin->regMrSym(comm.colls[c], comm.inlines[c], MAX_RANKS * QUEUE * sizeof(uint64_t), NCCL_PTR_HOST, 0, &comm.inlineRegions[c], &unused) == 0);
    CHECK(gin->closeListen(listener) == 0);
    meet();
  }
}

void register_window(struct window *window, int type) {
  void *unused;
  for (int c = 0; c < CONTEXTS; c++)
    CHECK(gin->regMrSym(comm.colls[c], window->at, window->bytes, type, 0, &unused, &window->regions[c]) == 0);
}

/* As ncclGinFinalize: the proxy thread is over. */
void finish(void) {
  for (int c = 0; c < CONTEXTS; c++) {
    CHECK(gin->deregMrSym(comm.colls[c], comm.signalRegions[c]) == 0);
    free(comm.inlines[c]);
    CHECK(gin->deregMrSym(comm.colls[c], comm.inlineRegions[c]) == 0);
    CHECK(gin->closeColl(comm.colls[c]) == 0);
  }
  CHECK(gin->finalize(comm.ginInstance) == 0 && gin->finalize(comm.ginContext) == 0 && net->finalize(NULL) == 0);
}

void play(const char *name, int ranks, int dies, void (*story)(void)) {
  pid_t children[MAX_RANKS];
  numRanks = ranks;
  if (shared == NULL) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  memset(shared, 0, sizeof *shared);
  fflush(NULL);
  for (rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] > 0) continue;
    alarm(150);
    begin();
    story();
    _exit(0);
  }
  rank = -1;
  int failures = 0;
  for (int left = ranks; left > 0; left--) {
    int status, r = 0;
    pid_t child = wait(&status);
    while (r < ranks && children[r] != child) r++;
    if (r != dies && status != 0) fprintf(stderr, "%s: rank %d: status %x\n", name, r, status);
    children[r] = 0;
    int good = r == dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    if (!good && failures++ == 0)
      for (int o = 0; o < ranks; o++) /* who failed said why; the others would wait */
        if (children[o] > 0) kill(children[o], SIGTERM);
  }
  CHECK(failures == 0, "%s, %d ranks", name, ranks);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and launches. PTX is other programs' and its kernels only take time, but for the carrier's one (cuda_copy.c); a
 * fatbin is ours (kernels/), and its kernels are those that were compiled into this library, whatever is in the image.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_grid.h"
#include "cuda_stream.h"

#define MAGIC_OURS 0xd7a4c0deu /* no letters of PTX text */

static const char fatbinMagic[] = "\x50\xed\x55\xba";

struct CUfunc_st {
  uint32_t magic;
  const struct kernel *kernel; /* NULL: one of the network card's (cuda_nic.cc) */
  int watches;                 /* which */
  CUmodule module;
  struct CUfunc_st *next;
};

/* A PTX module is its text. */
struct CUmod_st {
  uint32_t magic;
  CUcontext context;
  struct CUfunc_st *functions;
};

static int is_ours(const void *handle) {
  uint32_t magic;
  memcpy(&magic, handle, sizeof magic);
  return magic == MAGIC_OURS;
}

static CUresult load_ours(CUmodule *module) {
  if (fakegpu_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *module = calloc(1, sizeof **module);
  if (*module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  **module = (struct CUmod_st){MAGIC_OURS, fakegpu_current(), NULL};
  return 0;
}

FAKEGPU_API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (strncmp(image, fatbinMagic, 4) == 0) return load_ours(module);
  if (strstr(image, ".entry ") == NULL) return CUDA_ERROR_INVALID_VALUE; /* no other image is known here */
  *module = (CUmodule)(uintptr_t)image;
  return 0;
}

/* Functions go with it; launches that were made keep what they need. */
FAKEGPU_API CUresult cuModuleUnload(CUmodule module) {
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_ours(module)) return 0;
  for (struct CUfunc_st *f = module->functions, *next; f != NULL; f = next) {
    next = f->next;
    free(f);
  }
  free(module);
  return 0;
}

FAKEGPU_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  if (!is_ours(module)) {
    *function = (CUfunction)strstr((const char *)module, name);
    return *function == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
  }
  const struct kernel *kernel = kernel_find(name);
  const int watches = strcmp(name, nic_watch_name) == 0;
  if (kernel == NULL && !watches && strcmp(name, nic_kernel_name) != 0 && strcmp(name, nic_fed_name) != 0) return CUDA_ERROR_NOT_FOUND;
  *function = calloc(1, sizeof **function);
  if (*function == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  **function = (struct CUfunc_st){MAGIC_OURS, kernel, watches, module, module->functions};
  module->functions = *function;
  return 0;
}

FAKEGPU_API CUresult cuFuncLoad(CUfunction function) { return function == NULL ? CUDA_ERROR_INVALID_VALUE : 0; }

FAKEGPU_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  int known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= 232448;
  return function != NULL && known ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : atof(text);
}

/* As a test has them while the program runs. */
static void read_times(double *us, double *sentUs) {
  const char *path = getenv("FAKEGPU_KERNEL_FILE");
  FILE *file = path == NULL ? NULL : fopen(path, "re");
  double read[2];
  if (file == NULL) return;
  if (fscanf(file, "%lf %lf", &read[0], &read[1]) == 2) *us = read[0], *sentUs = read[1];
  fclose(file);
}

/* A timed call's kernel stamps when it really ran; the program knows virtual times alone. */
void module_ended(const struct kernel_launch *launch) {
  const struct dyn_call *call = &launch->arguments.call;
  if (launch->kernel->onGin || !(call->tag & DYN_STAMP_TIMED) || (uint32_t)__atomic_load_n(&call->stamps->word, __ATOMIC_RELAXED) != call->tag) return;
  __atomic_store_n(&call->stamps->beginNs, (uint64_t)launch->beginNs, __ATOMIC_RELAXED);
  __atomic_store_n(&call->stamps->counterNs, (uint64_t)launch->sentNs, __ATOMIC_RELAXED);
  __atomic_store_n(&call->stamps->signalNs, (uint64_t)launch->endNs, __ATOMIC_RELAXED);
}

static void launch(const struct kernel_launch *given, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  struct job job = {.kind = JOB_KERNEL, .launch = *given};
  size_t count = given->kernel->onGin ? given->arguments.gin.count : given->arguments.call.count;
  double bytes = (double)count * (double)given->kernel->elementBytes;
  double us = number("FAKEGPU_KERNEL_US", 4), move = bytes / number("FAKEGPU_KERNEL_GBS", 100), sentUs = number("FAKEGPU_KERNEL_SENT_US", us / 2 + move / 2e3);
  read_times(&us, &sentUs);
  double takes = us * 1e3 + move, sent = sentUs * 1e3;
  stream_look(NULL);
  job.launch.beginNs = s->nowNs;
  job.launch.sentNs = s->nowNs + (sent < takes ? sent : takes);
  job.launch.endNs = s->nowNs + takes;
  queue_add(s, &job);
  s->nowNs = job.launch.endNs;
}

struct captured {
  struct fakegpu_work work;
  struct kernel_launch launch;
};

static void replay(struct fakegpu_work *work, CUstream stream) { launch(&((struct captured *)work)->launch, stream); }
static void release(struct fakegpu_work *work) { free(work); }

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* What a launch of the card's kernel comes to from now on in this process: a CUresult. */
static atomic_int nicResult;
FAKEGPU_API void fakegpu_nic_result(int result);
FAKEGPU_API void fakegpu_nic_result(int result) { atomic_store(&nicResult, result); }

/* Blocks of the last of them that has some to help. */
static atomic_uint nicGrid;
FAKEGPU_API unsigned fakegpu_nic_grid(void);
FAKEGPU_API unsigned fakegpu_nic_grid(void) { return atomic_load(&nicGrid); }

/* Its first blocks are of queues, each of a peer. It runs whether the host waits for anything or not, as the card that it plays would. */
static CUresult launch_nic(CUfunction function, unsigned grid, CUstream stream, void **arguments) {
  struct job job = {.kind = function->watches ? JOB_WATCH : JOB_NIC};
  memcpy(&job.nic, arguments[0], sizeof job.nic);
  if (fakegpu_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (atomic_load(&nicResult) != 0) return (CUresult)atomic_load(&nicResult);
  if (stream_of(stream)->context != function->module->context) return CUDA_ERROR_INVALID_HANDLE;
  if (job.nic.nRanks < 1 || job.nic.nRanks > NIC_MAX_RANKS || (!function->watches && grid < (unsigned)job.nic.nRanks)) return CUDA_ERROR_INVALID_VALUE;
  if (capture_refuses(stream_of(stream))) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!function->watches && !job.nic.alone) atomic_store(&nicGrid, grid);
  stream_look(NULL);
  queue_add(stream_of(stream), &job);
  queue_is_done(stream_of(stream), queue_added(stream_of(stream))); /* begins it */
  return 0;
}

static CUresult launch_ours(CUfunction function, unsigned grid, unsigned block, CUstream stream, void **arguments) {
  const struct kernel *kernel = function->kernel;
  struct kernel_launch own = {.kernel = kernel, .blocks = least(grid, kernel->onGin > GRID_BLOCKS ? GRID_MOST_BLOCKS : GRID_BLOCKS), .threads = least(block, GRID_THREADS)};
  if (fakegpu_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream_of(stream)->context != function->module->context) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel->onGin) {
    memcpy(&own.arguments.comm, arguments[0], sizeof own.arguments.comm);
    memcpy(&own.arguments.gin, arguments[1], kernel->secondBytes);
  } else {
    memcpy(&own.arguments.call, arguments[0], sizeof own.arguments.call);
  }
  if (!kernel->onGin && kernel->secondBytes > 0) memcpy(&own.arguments.second, arguments[1], kernel->secondBytes);
  if (kernel->hasParts) memcpy(&own.arguments.parts, arguments[2], sizeof own.arguments.parts);
  if (fakegpu_capturing(stream) == 2) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!fakegpu_capturing(stream)) {
    launch(&own, stream);
    return 0;
  }
  struct captured *c = calloc(1, sizeof *c);
  if (c == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *c = (struct captured){{.run = replay, .release = release, .grid = grid, .block = block}, own};
  fakegpu_capture(stream, &c->work);
  return 0;
}

FAKEGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                                    unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                                    CUstream stream, void **arguments, void **extra) {
  if (function == NULL || arguments == NULL || gridX * gridY * gridZ == 0 || blockX * blockY * blockZ > 1024 ||
      sharedBytes > 232448)
    return CUDA_ERROR_INVALID_VALUE;
  lock_pass(stream_of(stream)->context);
  if (!is_ours(function)) return add_is(function) ? add_launch(stream, arguments) : stream_occupy(stream);
  if (gridX > DYN_KERNEL_MAX_BLOCKS || blockX == 0 || blockX > DYN_KERNEL_THREADS || gridY * gridZ * blockY * blockZ != 1 ||
      sharedBytes != 0 || extra != NULL)
    return CUDA_ERROR_INVALID_VALUE;
  return function->kernel == NULL ? launch_nic(function, gridX, stream, arguments) : launch_ours(function, gridX, blockX, stream, arguments);
}

typedef struct { /* cuda.h */
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  struct { int id; char value[64] __attribute__((aligned(8))); } *attrs;
  unsigned numAttrs;
} CUlaunchConfig;
enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN = 10 };

/* What the newest launch with a config asked for, for tests: 1 << its attributes that are not 0. */
static _Atomic unsigned long launchedWith;
FAKEGPU_API unsigned long fakegpu_launched_with(void);
FAKEGPU_API unsigned long fakegpu_launched_with(void) { return launchedWith; }

/* The attributes change nothing here: a kernel never begins before the stream's last one is over, and the CPU's memory has one domain. */
FAKEGPU_API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **arguments, void **extra) {
  unsigned long with = 0;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    int id = c->attrs[i].id, value;
    memcpy(&value, c->attrs[i].value, sizeof value);
    if (id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && id != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) return CUDA_ERROR_INVALID_VALUE;
    if (value != 0) with |= 1ul << id;
  }
  launchedWith = with;
  return cuLaunchKernel(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream,
                        arguments, extra);
}

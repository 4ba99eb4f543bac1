/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../say.h"

#define NAME "dynamicclCarrierNic"
#define FED_NAME "dynamicclCarrierFed"
#define WATCH_NAME "dynamicclCarrierWatch"
#define FILE_NAME "dynamiccl-carrier.fatbin"

struct nic_kernel {
  void *module, *function, *watch;
  void *stream, *asks, *looks; /* the kernel's; what is written while it runs; what is read while none does */
  void *ended, *looked;
  bool looking;
};

const char *nic_kernel_file(void) {
  static _Thread_local char path[4096];
  Dl_info self;
  const char *library = dladdr((void *)nic_kernel_file, &self) != 0 && self.dli_fname != NULL ? self.dli_fname : "";
  const char *slash = strrchr(library, '/');
  int length = snprintf(path, sizeof path, "%.*s" FILE_NAME, slash == NULL ? 0 : (int)(slash - library) + 1, library);
  return length > 0 && length < (int)sizeof path && access(path, R_OK) == 0 ? path : NULL;
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return NULL;
  char *image = NULL;
  long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  if (bytes > 0 && fseek(file, 0, SEEK_SET) == 0 && (image = malloc((size_t)bytes)) != NULL && fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
    free(image);
    image = NULL;
  }
  fclose(file);
  return image;
}

static bool load(struct nic_kernel *k, bool fed) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  const char *path = nic_kernel_file();
  char *image = path == NULL ? NULL : read_file(path);
  int least, greatest;
  if (image == NULL) {
    carrier_warn("the kernel is not to be read: %s; `make carrier` builds it with CUDA's compiler", path == NULL ? FILE_NAME : path);
    return false;
  }
  bool loaded = !carrier_failed(cuda->cuModuleLoadData(&k->module, image), path);
  free(image);
  /* All of it now: CUDA may wait for the GPU when it loads a function, whose kernels may by then be waiting for a signal. */
  return loaded && !carrier_failed(cuda->cuModuleGetFunction(&k->function, k->module, fed ? FED_NAME : NAME), "cuModuleGetFunction") &&
         !carrier_failed(cuda->cuFuncLoad(k->function), "cuFuncLoad") &&
         !carrier_failed(cuda->cuModuleGetFunction(&k->watch, k->module, WATCH_NAME), "cuModuleGetFunction") && !carrier_failed(cuda->cuFuncLoad(k->watch), "cuFuncLoad") &&
         !carrier_failed(cuda->cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange") &&
         !carrier_failed(cuda->cuStreamCreateWithPriority(&k->stream, CARRIER_STREAM_NON_BLOCKING, greatest), "cuStreamCreateWithPriority") &&
         !carrier_failed(cuda->cuStreamCreateWithPriority(&k->asks, CARRIER_STREAM_NON_BLOCKING, greatest), "cuStreamCreateWithPriority") &&
         !carrier_failed(cuda->cuStreamCreateWithPriority(&k->looks, CARRIER_STREAM_NON_BLOCKING, greatest), "cuStreamCreateWithPriority") &&
         !carrier_failed(cuda->cuEventCreate(&k->ended, CARRIER_EVENT_DISABLE_TIMING), "cuEventCreate") &&
         !carrier_failed(cuda->cuEventCreate(&k->looked, CARRIER_EVENT_DISABLE_TIMING), "cuEventCreate");
}

struct nic_kernel *nic_kernel_make(bool fed) {
  struct nic_kernel *k = calloc(1, sizeof *k);
  if (k == NULL || load(k, fed)) return k;
  nic_kernel_free(k, true);
  return NULL;
}

int nic_write(void *stream, carrier_address to, const void *from, size_t bytes) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  int result = cuda->cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
  return result != 0 ? result : cuda->cuStreamSynchronize(stream);
}

int nic_read(void *to, carrier_address from, size_t bytes) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  void *stream = NULL;
  int result = cuda->cuStreamCreateWithPriority(&stream, CARRIER_STREAM_NON_BLOCKING, 0);
  if (result == 0) result = cuda->cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
  if (result == 0) result = cuda->cuStreamSynchronize(stream);
  if (stream != NULL) cuda->cuStreamDestroy_v2(stream);
  return result;
}

int nic_kernel_fill(struct nic_kernel *k, carrier_address to, const void *from, size_t bytes) { return nic_write(k->asks, to, from, bytes); }

int nic_kernel_clear(struct nic_kernel *k, carrier_address at, unsigned char byte, size_t bytes) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  int result = cuda->cuMemsetD8Async(at, byte, bytes, k->asks);
  return result != 0 ? result : cuda->cuStreamSynchronize(k->asks);
}

static bool start_both(struct nic_kernel *k, struct nic *nic, unsigned blocks) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  void *arguments[] = {nic};
  return !carrier_failed(cuda->cuLaunchKernel(k->watch, 1, 1, 1, NIC_WATCH_THREADS, 1, 1, 0, k->stream, arguments, NULL), "the kernel's start") &&
         !carrier_failed(cuda->cuLaunchKernel(k->function, blocks, 1, 1, NIC_THREADS, 1, 1, 0, k->stream, arguments, NULL), "the kernel's start");
}

bool nic_kernel_start(struct nic_kernel *k, const struct nic *nic, unsigned blocks) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct nic first = *nic, alone = *nic;
  first.followed = alone.alone = 1;
  alone.watchNs = 0;
  alone.launch += NIC_LAUNCHES;
  return !carrier_failed(cuda->cuMemsetD8Async((carrier_address)(uintptr_t)nic->launch, 0, 2 * NIC_LAUNCHES * sizeof *nic->launch, k->stream), "the kernel's start") &&
         start_both(k, &first, blocks) && start_both(k, &alone, (unsigned)nic->nRanks) && !carrier_failed(cuda->cuEventRecord(k->ended, k->stream), "the kernel's start");
}

static bool is_over(void *event, const char *what, atomic_bool *broken) {
  int state = carrier_driver(NULL)->cuEventQuery(event);
  if (state == CARRIER_NOT_READY) return false;
  *broken = *broken || carrier_failed(state, what);
  return true;
}

bool nic_kernel_ended(struct nic_kernel *k, atomic_bool *broken) { return is_over(k->ended, "the kernel", broken); }

bool nic_kernel_looked(struct nic_kernel *k, void *to, carrier_address from, size_t bytes, atomic_bool *broken) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  if (k->looking && is_over(k->looked, "a look at doorbells", broken)) {
    k->looking = false;
    return !*broken;
  }
  if (k->looking) return false;
  k->looking = true;
  *broken = carrier_failed(cuda->cuMemcpyDtoHAsync_v2(to, from, bytes, k->looks), "a look at doorbells") ||
            carrier_failed(cuda->cuEventRecord(k->looked, k->looks), "a look at doorbells");
  return false;
}

static void end_stream(void *stream) {
  if (stream == NULL) return;
  carrier_driver(NULL)->cuStreamSynchronize(stream);
  carrier_driver(NULL)->cuStreamDestroy_v2(stream);
}

static void give_back(struct nic_kernel *k) {
  end_stream(k->stream);
  end_stream(k->asks);
  end_stream(k->looks);
  if (k->ended != NULL) carrier_driver(NULL)->cuEventDestroy_v2(k->ended);
  if (k->looked != NULL) carrier_driver(NULL)->cuEventDestroy_v2(k->looked);
  if (k->module != NULL) carrier_driver(NULL)->cuModuleUnload(k->module);
}

void nic_kernel_free(struct nic_kernel *k, bool lives) {
  if (k != NULL && lives) give_back(k);
  free(k);
}

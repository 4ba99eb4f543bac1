/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>

#include "worker.h"

struct cuda_functions cuda;

/* Handed from dlsym to a function pointer; ISO C has no such conversion, POSIX defines this one. */
struct symbol { void **at; const char *name; };

int cuda_load(struct worker *worker) {
  static const char file[] = "libcuda.so.1";
  if (cuda.cuInit != NULL) return 0;
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  worker->unusable = 1;
  if (library == NULL)
    return worker_fail(worker, "loading CUDA's driver: %s: install NVIDIA's driver, or have its %s found by the linker "
                       "(LD_LIBRARY_PATH; in a container, start it with its GPUs)", dlerror(), file);
#define SYMBOL(name, arguments) {(void **)&cuda.name, #name},
  const struct symbol symbols[] = {CUDA_FUNCTIONS(SYMBOL)};
#undef SYMBOL
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    *symbols[i].at = dlsym(library, symbols[i].name);
    if (*symbols[i].at == NULL)
      return worker_fail(worker, "loading CUDA's driver: %s has no %s: a driver for CUDA 12.0 or newer is needed", file,
                         symbols[i].name);
  }
  worker->unusable = 0;
  return 0;
}

static const char *remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return "free memory of this GPU, or start the worker with a smaller --max-bytes";
    case CUDA_ERROR_NO_DEVICE: return "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
    case CUDA_ERROR_INVALID_DEVICE: return "--device counts the visible GPUs from 0: look at CUDA_VISIBLE_DEVICES";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "the driver's libnvidia-ptxjitcompiler.so.1 is missing or old: install the whole driver";
    case CUDA_ERROR_SYSTEM_NOT_READY: return "the driver is not ready: is nvidia-fabricmanager running?";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return "kernel module and libcuda differ: load the module of this driver";
    default: return "start the ranks again; if it comes back, dmesg says what the driver saw";
  }
}

int cuda_failed(struct worker *worker, const char *call, CUresult result) {
  const char *name = "no name", *text = "no text";
  if (cuda.cuGetErrorName(result, &name) != 0) name = "unknown error";
  if (cuda.cuGetErrorString(result, &text) != 0) text = "no text";
  worker->unusable = 1;
  return worker_fail(worker, "%s: %s (%d): %s: %s", call, name, result, text, remedy(result));
}

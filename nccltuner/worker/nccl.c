/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL is taken from the library that was named, and not from whatever else the process has loaded; but where
 * libdynamiccl.so is preloaded the calls go through it, as a program's own would, for else it would time none.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "worker.h"

struct nccl_functions nccl;

struct symbol { void **at; const char *name; int needed; };

/* The preload forwards to the libnccl.so.2 that is loaded: the one at hand, unless its soname is another. */
static int goes_through_preload(void *library) {
  void *same = dlopen("libnccl.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (same != NULL) dlclose(same);
  return same == library && dlsym(RTLD_DEFAULT, "dynamiccl_preload") != NULL;
}

int nccl_load(struct worker *worker) {
  if (worker->ncclVersion != 0) return 0;
  const char *file = worker->ncclPath != NULL ? worker->ncclPath : "libnccl.so.2";
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  worker->unusable = 1;
  if (library == NULL)
    return worker_fail(worker, "loading NCCL: %s: name its file with --nccl-lib (PyTorch's is nvidia/nccl/lib/libnccl.so.2 "
                       "in its site-packages), or install NCCL", dlerror());
#define SYMBOL(name, arguments) {(void **)&nccl.name, #name, 1},
#define NEWER(name, arguments) {(void **)&nccl.name, #name, 0},
  const struct symbol symbols[] = {NCCL_FUNCTIONS(SYMBOL) NCCL_TEXT_FUNCTIONS(SYMBOL) NCCL_NEWER_FUNCTIONS(NEWER)};
#undef SYMBOL
#undef NEWER
  /* In the program's own order, not with RTLD_DEFAULT, by which the preload library shows nothing of an NCCL that is loaded for its user alone. */
  void *program = goes_through_preload(library) ? dlopen(NULL, RTLD_LAZY) : NULL;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    *symbols[i].at = dlsym(library, symbols[i].name);
    if (*symbols[i].at == NULL && symbols[i].needed)
      return worker_fail(worker, "loading NCCL: %s has no %s: name another library with --nccl-lib", file, symbols[i].name);
    void *before = program != NULL && *symbols[i].at != NULL ? dlsym(program, symbols[i].name) : NULL;
    if (before != NULL) *symbols[i].at = before;
  }
  worker->unusable = 0;
  NCCL(worker, ncclGetVersion, &worker->ncclVersion);
  return 0;
}

int nccl_failed(struct worker *worker, const char *call, ncclResult_t result) {
  const char *last = nccl.ncclGetLastError(worker->comm), *debug = getenv("NCCL_DEBUG");
  worker->unusable = 1;
  return worker_fail(worker, "%s: %s (%d)%s%s: %s", call, nccl.ncclGetErrorString(result), result,
                     last != NULL && *last != '\0' ? ": " : "", last != NULL ? last : "",
                     debug == NULL ? "NCCL_DEBUG=INFO makes NCCL say more, on standard error"
                                   : "NCCL's own lines on standard error say more");
}

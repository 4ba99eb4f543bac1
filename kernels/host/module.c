/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels come from a file beside the library, dynamiccl-kernels.fatbin, so that the libraries build without a CUDA
 * compiler; DYNAMICCL_KERNELS names another one. All functions are loaded at once: CUDA would load each at its first
 * launch otherwise, and may wait for the GPU there, which hangs where a peer waits for this rank.
 */
#include "module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../nccltuner/plugin/nccl_env.h"
#include "../device/call.h"
#include "host.h"

#define FATBIN_NAME "dynamiccl-kernels.fatbin"
#define FATBIN_MAGIC 0xBA55ED50u
#define FATBIN_MOST (64l << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dyn_module *modules; /* under lock; never freed */
static void *image;                /* under lock; NULL: not read yet */
static bool failed;                /* under lock: it cannot be had, or not be loaded */

const char *const dyn_type_names[DYN_NUM_TYPES] = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double",
                                                 "bfloat16", "fp8e4m3", "fp8e5m2"};
static const char *const typed[DYN_NUM_TYPED] = {"oneShot", "twoShot", "bulk", "reduceScatter", "reduceScatterBulk"};

/* False: nobody named a file, and there is none: the kernels were not built. */
static bool path_of(const char *name, const char *variable, char path[4096]) {
  const char *named = getenv(variable);
  Dl_info self;
  if (named != NULL && *named != '\0') {
    snprintf(path, 4096, "%s", named);
    return true;
  }
  const char *library = dladdr((void *)dyn_module_get, &self) != 0 && self.dli_fname != NULL ? self.dli_fname : "";
  const char *slash = strrchr(library, '/');
  snprintf(path, 4096, "%.*s%s", slash == NULL ? 0 : (int)(slash - library + 1), library, name);
  return access(path, F_OK) == 0;
}

void *dyn_fatbin_read(const char *name, const char *variable, char path[4096], const char **why) {
  void *data = NULL;
  *why = NULL;
  if (!path_of(name, variable, path)) return NULL;
  FILE *file = fopen(path, "rbe");
  *why = "cannot be read; build it with `make kernels`, or name it with DYNAMICCL_KERNELS (the kernels on GIN: DYNAMICCL_GIN_KERNELS)";
  if (file == NULL) return NULL;
  long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  uint32_t magic = 0;
  if (bytes >= (long)sizeof magic && bytes <= FATBIN_MOST && fseek(file, 0, SEEK_SET) == 0) data = malloc((size_t)bytes);
  if (data != NULL && fread(data, 1, (size_t)bytes, file) == (size_t)bytes) memcpy(&magic, data, sizeof magic);
  fclose(file);
  if (magic == FATBIN_MAGIC) return data;
  *why = "is no fatbin of kernels; build it anew with `make kernels`";
  free(data);
  return NULL;
}

bool dyn_fatbin_there(const char *name, const char *variable) {
  char path[4096];
  return path_of(name, variable, path);
}

bool dyn_function_get(void *module, const char *name, void **function) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  return driver->cuModuleGetFunction(function, module, name) == 0 && driver->cuFuncLoad(*function) == 0;
}

static bool get_all(void *module, struct dyn_module *m) {
  char name[64];
  void *layout;
  bool all = dyn_function_get(module, DYN_KERNEL_LAYOUT_NAME, &layout) && dyn_function_get(module, "allGather", &m->allGather) && dyn_function_get(module, "allGatherBulk", &m->allGatherBulk) &&
             dyn_function_get(module, "allToAll", &m->allToAll) && dyn_function_get(module, "allToAllBulk", &m->allToAllBulk) &&
             dyn_function_get(module, "allToAllV", &m->allToAllV) &&
             dyn_function_get(module, "broadcast", &m->broadcast) && dyn_function_get(module, "broadcastBulk", &m->broadcastBulk);
  for (int k = 0; k < DYN_NUM_TYPED && all; k++)
    for (int t = 0; t < DYN_NUM_TYPES && all; t++) {
      snprintf(name, sizeof name, "%s_%s", typed[k], dyn_type_names[t]);
      all = dyn_function_get(module, name, &m->typed[k][t]);
    }
  for (int t = 0; t < DYN_NUM_TYPES && all; t++) {
    if (!dyn_is_norm_type(t)) continue;
    snprintf(name, sizeof name, "allReduceAddRmsNorm_%s", dyn_type_names[t]);
    all = dyn_function_get(module, name, &m->rmsNorm[t]);
  }
  return all;
}

static void launch_with(struct dyn_module *m, int id, int number) {
  m->attributes[m->numOfLong++] = (struct dyn_launch_attribute){.id = id, .value.number = number};
}

/* Kernels may be launched before the stream's last one is over, for which they wait (machine.cuh). And the end of a kernel that computes
 * beside a long one does not wait for what that has on its way to peers: its memory operations are in a domain of their own, which NCCL's are
 * in, too, unless its user says 0 (v2.28.9-1, src/enqueue.cc; CUDA's guide, memory synchronization domains). */
static void choose_attributes(struct dyn_module *m) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int device, major = 0, domains = 0;
  if (driver->cuCtxGetDevice(&device) != 0 || driver->cuDeviceGetAttribute(&major, DYN_COMPUTE_CAPABILITY_MAJOR, device) != 0 || major < 9) return;
  launch_with(m, DYN_LAUNCH_EARLY, 1);
  m->numAttributes = m->numOfLong;
  if (!nccl_is_off("NCCL_MEM_SYNC_DOMAIN") && driver->cuDeviceGetAttribute(&domains, DYN_SYNC_DOMAINS, device) == 0 && domains > 1) launch_with(m, DYN_LAUNCH_DOMAIN, DYN_REMOTE_DOMAIN);
}

/* Under lock. */
static struct dyn_module *load(dyn_context context, unsigned long long id) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  char path[4096] = "the kernels";
  const char *why = NULL;
  void *module;
  if (image == NULL) image = dyn_fatbin_read(FATBIN_NAME, "DYNAMICCL_KERNELS", path, &why);
  if (image == NULL && why == NULL) {
    failed = true;
    return NULL;
  }
  struct dyn_module *made = image == NULL ? NULL : calloc(1, sizeof *made);
  if (made != NULL && (driver->cuModuleLoadData(&module, image) != 0 || !get_all(module, made))) {
    why = "does not load: it is of another build than this library (build it anew with `make kernels`), or has nothing for this GPU (it has "
          "kernels for compute capability 8.0, 9.0, 10.0 and newer)";
    free(made);
    made = NULL;
  }
  if (made == NULL) {
    failed = true;
    dyn_host_say("%s %s: no device kernels, NCCL runs all calls", path, why == NULL ? "finds no memory" : why);
    return NULL;
  }
  choose_attributes(made);
  made->context = context;
  made->contextId = id;
  made->next = modules;
  modules = made;
  return made;
}

const struct dyn_module *dyn_module_get(dyn_context context) {
  unsigned long long id;
  const struct dyn_module *found = NULL;
  if (dyn_host_driver() == NULL || dyn_host_driver()->cuCtxGetId(context, &id) != 0) return NULL;
  pthread_mutex_lock(&lock);
  for (struct dyn_module *m = modules; m != NULL && found == NULL; m = m->next)
    if (m->context == context && m->contextId == id) found = m;
  if (found == NULL && !failed) found = load(context, id);
  pthread_mutex_unlock(&lock);
  return found;
}

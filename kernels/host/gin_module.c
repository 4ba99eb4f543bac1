/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN, from a file beside the library: that of the version of NCCL that the process has. DYNAMICCL_GIN_KERNELS names
 * another one. All functions are loaded at once, as in module.c.
 */
#include <pthread.h>
#include <stdio.h>

#include "gin_life.h"

#define VARIABLE "DYNAMICCL_GIN_KERNELS"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dyn_gin_module *modules; /* under lock; never freed */
static void *image;                    /* under lock; NULL: not read yet */
static bool failed;                    /* under lock */

/* kernels/Makefile, and cmd/dynamiccld/internal/kernelsfile. */
static const char *file_of(int version) { return version == 22809 ? "dynamiccl-gin.fatbin" : "dynamiccl-gin-2.32.3.fatbin"; }

bool dyn_gin_module_there(int version) { return dyn_fatbin_there(file_of(version), VARIABLE); }

static bool get_all(void *module, int version, struct dyn_gin_module *m) {
  char name[64];
  void *layout;
  snprintf(name, sizeof name, DYN_GIN_LAYOUT_PREFIX "%d", version);
  bool all = dyn_function_get(module, name, &layout) && dyn_function_get(module, "ginAllToAll", &m->allToAll) &&
             dyn_function_get(module, "ginAllGather", &m->allGather) && dyn_function_get(module, "ginMove", &m->move) &&
             dyn_function_get(module, "ginAllToAllV", &m->allToAllV) && dyn_function_get(module, "ginMoveParts", &m->moveParts) &&
             dyn_function_get(module, "ginProbe", &m->probe) && dyn_function_get(module, "ginLook", &m->look);
  for (int t = 0; t < DYN_NUM_TYPES && all; t++) {
    snprintf(name, sizeof name, "ginAllReduce_%s", dyn_type_names[t]);
    all = dyn_function_get(module, name, &m->allReduce[t]);
    snprintf(name, sizeof name, "ginReduceScatter_%s", dyn_type_names[t]);
    all = all && dyn_function_get(module, name, &m->reduceScatter[t]);
  }
  for (int t = 0; t < DYN_NUM_TYPES && all; t++) {
    if (!dyn_is_norm_type(t)) continue;
    snprintf(name, sizeof name, "ginMoveSums_%s", dyn_type_names[t]);
    all = dyn_function_get(module, name, &m->moveSums[t]);
    snprintf(name, sizeof name, "ginAllReduceInRounds_%s", dyn_type_names[t]);
    all = all && dyn_function_get(module, name, &m->allReduceInRounds[t]);
  }
  return all;
}

/* Under lock. */
static struct dyn_gin_module *load(dyn_context context, unsigned long long id) {
  char path[4096] = "the kernels on GIN";
  const char *why = NULL;
  void *module;
  int version = dyn_gin_nccl()->version;
  if (image == NULL) image = dyn_fatbin_read(file_of(version), VARIABLE, path, &why);
  struct dyn_gin_module *made = image == NULL ? NULL : calloc(1, sizeof *made);
  if (made != NULL && (dyn_host_driver()->cuModuleLoadData(&module, image) != 0 || !get_all(module, version, made))) {
    why = "does not load: it is of another build than this library, or for another NCCL (build it anew with `make kernels`), or has nothing for this GPU";
    free(made);
    made = NULL;
  }
  if (made == NULL) {
    failed = true;
    if (why != NULL) dyn_host_say("%s %s: no kernels on GIN", path, why);
    return NULL;
  }
  made->context = context;
  made->contextId = id;
  made->next = modules;
  modules = made;
  return made;
}

const struct dyn_gin_module *dyn_gin_module_get(dyn_context context) {
  unsigned long long id;
  const struct dyn_gin_module *found = NULL;
  if (dyn_gin_nccl() == NULL || dyn_host_driver() == NULL || dyn_host_driver()->cuCtxGetId(context, &id) != 0) return NULL;
  pthread_mutex_lock(&lock);
  for (struct dyn_gin_module *m = modules; m != NULL && found == NULL; m = m->next)
    if (m->context == context && m->contextId == id) found = m;
  if (found == NULL && !failed) found = load(context, id);
  pthread_mutex_unlock(&lock);
  return found;
}

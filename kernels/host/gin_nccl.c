/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's functions for GIN, of the library that the program has loaded. Never loads anything.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "gin_life.h"

static struct dyn_gin_nccl functions;
static bool complete;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A device communicator is NCCL's own structure, of which kernels know the layout that they were compiled with. */
static bool version_fits(void) {
  if (functions.ncclGetVersion(&functions.version) != DYN_NCCL_SUCCESS) return false;
#define IS(known) if (functions.version == (known)) return (known) == 22809 || functions.ncclCommQueryProperties != NULL;
  DYN_GIN_NCCL_VERSIONS(IS)
#undef IS
#define NAME(known) " " #known
  const char *wanted = getenv("DYNAMICCL_GIN");
  if (wanted != NULL && *wanted == '1') /* else it is no news */
    dyn_host_say("the kernels on GIN are for NCCL" DYN_GIN_NCCL_VERSIONS(NAME) ", and this is NCCL %d: none of them", functions.version);
#undef NAME
  return false;
}

static bool find(void *library) {
  bool all = true;
#define FIND(name, ...) all = (*(void **)&functions.name = dlsym(library, #name)) != NULL && all;
  DYN_GIN_NCCL_FUNCTIONS(FIND)
  FIND(ncclGetErrorString)
  FIND(ncclGetLastError)
#undef FIND
  *(void **)&functions.ncclCommQueryProperties = dlsym(library, "ncclCommQueryProperties");
  return all;
}

/* The library may come later than the first question: so only what was found is kept. */
const struct dyn_gin_nccl *dyn_gin_nccl(void) {
  static bool looked;
  pthread_mutex_lock(&lock);
  void *library = looked ? NULL : dlopen("libnccl.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library != NULL) {
    looked = true;
    complete = find(library) && version_fits();
    dlclose(library); /* gives back the count that dlopen took; who loaded it still has it */
  }
  const struct dyn_gin_nccl *found = complete ? &functions : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

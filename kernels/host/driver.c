/* SPDX-License-Identifier: Apache-2.0
 *
 * Never loads anything: the driver is the program's.
 */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include "host.h"

static struct dyn_host_driver functions;
static bool complete;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  const char *missing = NULL;
  if (library == NULL) return;
#define FIND(name, arguments) \
  *(void **)&functions.name = dlsym(library, #name); \
  if (functions.name == NULL) missing = #name;
  DYN_HOST_FUNCTIONS(FIND)
#undef FIND
  dlclose(library); /* gives back the count that dlopen took; who loaded it still has it */
  complete = missing == NULL;
  if (missing != NULL) dyn_host_say("this CUDA driver has no %s (12.4 and newer have all that is needed): no device kernels", missing);
}

const struct dyn_host_driver *dyn_host_driver(void) {
  pthread_once(&once, find);
  return complete ? &functions : NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of CUDA's driver, found in the libcuda.so.1 that the program has loaded.
 */
#include "forward.h"
#include "probe.h"

static struct dyn_driver driver;
static bool complete;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
  complete = true;
#define SYMBOL(name, arguments) \
  *(void **)&driver.name = dyn_find_loaded("libcuda.so.1", #name); \
  complete &= driver.name != NULL;
  DYN_DRIVER_FUNCTIONS(SYMBOL)
#undef SYMBOL
}

const struct dyn_driver *dyn_driver(void) {
  pthread_once(&once, find);
  return complete ? &driver : NULL;
}

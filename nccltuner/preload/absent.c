/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that was to have our plugin, and whose NCCL has not loaded it: the file is not there, or that NCCL knows no tuner plugin of ours. Nobody
 * but this library is there to say so, and NCCL's log has it only for who has set NCCL_DEBUG.
 */
#include "../plugin/shows.h"
#include "device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define OURS "libnccl-tuner-dynamiccl.so"
#define FIRST_TUNER 22100 /* whose plugins are of version 2, the oldest that ours has */

/* The file that NCCL_TUNER_PLUGIN means, where it means ours (src/plugin/plugin_open.cc); NULL: another one, or none. */
static const char *wanted(void) {
  const char *name = getenv("NCCL_TUNER_PLUGIN"), *slash = name == NULL ? NULL : strrchr(name, '/');
  if (name == NULL) return NULL;
  if (strcmp(name, "dynamiccl") == 0) return OURS;
  return strcmp(slash == NULL ? name : slash + 1, OURS) == 0 ? name : NULL;
}

static bool is_loaded(const char *file) {
  void *library = dlopen(file, RTLD_NOLOAD | RTLD_LAZY);
  if (library != NULL) dlclose(library);
  return library != NULL;
}

static void say(const char *file) {
  int (*get)(int *) = (int (*)(int *))dyn_find_behind("ncclGetVersion"), version = 0;
  if (get != NULL && get(&version) == 0 && version < FIRST_TUNER)
    dyn_host_say("NCCL %d.%d.%d loads no tuner plugin like %s: running plain NCCL; tuning needs NCCL 2.28, or 2.27", version / 10000, version / 100 % 100, version % 100, file);
  else if (strchr(file, '/') != NULL && access(file, R_OK) != 0)
    dyn_host_say("NCCL_TUNER_PLUGIN=%s cannot be read: running plain NCCL; `make plugin` builds it, and `dynamiccld run` or `dynamiccld env` names it", file);
  else
    dyn_host_say("NCCL has not loaded NCCL_TUNER_PLUGIN=%s: running plain NCCL; NCCL_DEBUG=INFO says why", file);
}

/* The first communicator of a process that is made tells: one that does not block when the program, which has to ask, hears so. Of its ranks,
 * which mostly have it alike, rank 0 speaks. */
void dyn_plugin_look(int rank) {
  static atomic_flag looked = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&looked) || rank > 0) return;
  const char *file = wanted();
  if (file != NULL && !is_loaded(file) && !dyn_nccl_shows(false) && !dyn_quiet()) say(file);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding plugin libraries: src/plugin/plugin_open.cc, tuner.cc and profiler.cc (2.28.9 and 2.30.7 agree). Left out:
 * the fallback to a net plugin's library (there is no net plugin here).
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl.h"

static const char *const kindNames[] = {"TUNER", "PROFILER"};
static const char *const prefixes[] = {"libnccl-tuner", "libnccl-profiler"};
static const unsigned long subsystems[] = {NCCL_SUBSYS_INIT | NCCL_SUBSYS_TUNING, NCCL_SUBSYS_INIT};
static char *paths[2];
static int version = 23007;
static atomic_ulong warnings;

/* Exported as libnccl exports it: a plugin may ask which NCCL it runs in. */
__attribute__((visibility("default"))) int ncclGetVersion(int *code);
int ncclGetVersion(int *code) {
  if (code == NULL) return 4; /* ncclInvalidArgument */
  *code = version;
  return 0;
}

int nccl_version(void) { return version; }
void nccl_version_code(int code) { version = code; }
unsigned long nccl_warnings(void) { return atomic_load(&warnings); }

void nccl_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  const char *debug = getenv("NCCL_DEBUG"), *subsystems = getenv("NCCL_DEBUG_SUBSYS");
  unsigned long shown = subsystems == NULL ? NCCL_SUBSYS_INIT | NCCL_SUBSYS_ENV : ~0ul; /* src/debug.cc */
  if (level == NCCL_LOG_WARN) atomic_fetch_add(&warnings, 1);
  if (debug == NULL || (strcasecmp(debug, "INFO") != 0 && (level != NCCL_LOG_WARN || strcasecmp(debug, "WARN") != 0))) return;
  if ((flags & shown) == 0) return;
  char text[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (level == NCCL_LOG_WARN) {
    fprintf(stderr, "%d:%ld %s:%d NCCL WARN %s\n", getpid(), syscall(SYS_gettid), file, line, text);
  } else {
    fprintf(stderr, "%d:%ld NCCL INFO %s\n", getpid(), syscall(SYS_gettid), text);
  }
}

static void *try_open(enum plugin_kind kind, const char *name, char *missing, size_t missingSize) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) {
    struct link_map *map;
    paths[kind] = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? strdup(map->l_name) : NULL;
    return library;
  }
  const char *reason = dlerror();
  if (strstr(reason, name) != NULL && strstr(reason, "No such file or directory") != NULL) {
    size_t used = strlen(missing);
    snprintf(missing + used, missingSize - used, " %s", name);
  } else {
    nccl_log(NCCL_LOG_INFO, subsystems[kind], __FILE__, __LINE__, "%s/Plugin: %s: %s", kindNames[kind], name, reason);
  }
  return NULL;
}

void *plugin_open(enum plugin_kind kind, const char *name) {
  char file[255], missing[1024] = "";
  int named = name != NULL && *name != '\0';
  if (named) snprintf(file, sizeof file, "%s", name);
  else snprintf(file, sizeof file, "%s.so", prefixes[kind]);
  void *library = try_open(kind, file, missing, sizeof missing);
  if (library != NULL) return library;
  /* Neither a path nor a library's name: then it is the NAME of libnccl-tuner-NAME.so. */
  size_t length = named ? strlen(name) : 0;
  int library_name = length >= 3 && strncmp(name, "lib", 3) == 0 && strcmp(name + length - 3, ".so") == 0;
  if (named && strchr(name, '/') == NULL && !library_name) {
    snprintf(file, sizeof file, "%s-%s.so", prefixes[kind], name);
    library = try_open(kind, file, missing, sizeof missing);
    if (library != NULL) return library;
  }
  if (*missing != '\0')
    nccl_log(NCCL_LOG_INFO, subsystems[kind], __FILE__, __LINE__, "%s/Plugin: Could not find:%s", kindNames[kind],
             missing);
  return NULL;
}

void plugin_close(enum plugin_kind kind, void *library) {
  if (library == NULL) return;
  dlclose(library);
  free(paths[kind]);
  paths[kind] = NULL;
}

const char *plugin_path(enum plugin_kind kind) { return paths[kind]; }

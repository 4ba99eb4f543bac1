/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a process runs plain NCCL, for people. NCCL's log has all reasons, but nobody sees it who has not set NCCL_DEBUG. So the
 * first one that it does not show is a line on standard error, while NCCL makes a communicator, and one line a process is all.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/host/stderr.h"
#include "comm.h"
#include "shows.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char why[PATH_MAX + 512]; /* under lock; "": none, or NCCL shows it */
static uint64_t left; /* under lock: the communicator whose other ranks' it is to tell; 0: whoever speaks tells it */
static bool told;     /* under lock */

void dyn_why(bool *said, dyn_logger log, int level, const char *file, int line, const char *format, ...) {
  char text[sizeof why];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  bool again = said && *said;
  if (said) *said = true; /* who sees this finds the text */
  if (!again) {
    snprintf(why, sizeof why, "%s", dyn_nccl_shows(level <= DYN_LOG_WARN) ? "" : text);
    left = 0;
  }
  pthread_mutex_unlock(&lock);
  if (log && !again) log(level, level == DYN_LOG_WARN ? ~0ul : DYN_LOG_INIT | DYN_LOG_TUNING, file, line, "DynamICCL: %s", text);
}

/* NCCL closes this library with the last communicator and opens it again for the next one, which would have told nothing yet. */
static void stay_loaded(void) {
  Dl_info self;
  if (dladdr(&told, &self) != 0 && self.dli_fname != NULL) dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void dyn_why_drop(void) {
  pthread_mutex_lock(&lock);
  *why = '\0';
  pthread_mutex_unlock(&lock);
}

void dyn_why_tell(uint64_t commId, bool speaks) {
  char text[sizeof why] = "";
  pthread_mutex_lock(&lock);
  bool ours = left == 0 || left == commId; /* else who tells it is still to come, or in another process */
  if (ours && speaks) {
    if (!told && !dyn_quiet()) memcpy(text, why, sizeof text);
    told |= *text != '\0';
    *why = '\0';
  } else if (ours) {
    left = commId;
  }
  pthread_mutex_unlock(&lock);
  if (!*text) return;
  stay_loaded();
  dyn_stderr_say(text); /* other ranks wait until this one has its communicator */
}

void dyn_why_fork_child(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

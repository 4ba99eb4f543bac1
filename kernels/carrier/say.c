/* SPDX-License-Identifier: Apache-2.0 */
#include "say.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic(ncclDebugLogger_t) log_line;

void carrier_logger(ncclDebugLogger_t logger) {
  if (logger != NULL) atomic_store(&log_line, logger);
}

void carrier_say(int level, const char *file, int line, const char *format, ...) {
  ncclDebugLogger_t logger = atomic_load(&log_line);
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (logger != NULL) logger(level, NCCL_INIT | NCCL_NET, file, line, "dynamiccl-carrier: %s", text);
  else if (level == NCCL_LOG_WARN) fprintf(stderr, "dynamiccl-carrier: %s\n", text);
}

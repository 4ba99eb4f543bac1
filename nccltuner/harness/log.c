/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct log_writer {
  FILE *file;
  char buffer[1 << 16];
};

int log_path(const char *path, unsigned rank, char *out, unsigned long size) {
  const char *mark = strstr(path, "%r");
  int n = mark == NULL ? snprintf(out, size, "%s", path)
                       : snprintf(out, size, "%.*s%u%s", (int)(mark - path), path, rank, mark + 2);
  return n >= 0 && (unsigned long)n < size ? 0 : -1;
}

struct log_writer *log_open(const char *path, const struct log_header *header, char *error, unsigned long errorSize) {
  char name[4096];
  struct log_writer *log = calloc(1, sizeof *log);
  if (log == NULL || log_path(path, header->rank, name, sizeof name) != 0) {
    snprintf(error, errorSize, "log %s: name too long or no memory", path);
    free(log);
    return NULL;
  }
  log->file = fopen(name, "wb");
  if (log->file == NULL) {
    snprintf(error, errorSize, "log %s: %s", name, strerror(errno));
    free(log);
    return NULL;
  }
  setvbuf(log->file, log->buffer, _IOFBF, sizeof log->buffer);
  fwrite(header, sizeof *header, 1, log->file);
  return log;
}

void log_add(struct log_writer *log, struct log_record *record) {
  const unsigned char *bytes = (const unsigned char *)record;
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *record - 4; i++) hash = (hash ^ bytes[i]) * 16777619u;
  record->check = hash;
  fwrite(record, sizeof *record, 1, log->file);
}

int log_close(struct log_writer *log) {
  int failed = ferror(log->file);
  failed |= fclose(log->file) != 0;
  free(log);
  return failed ? -1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "json.h"

static void grow(struct reply *reply, size_t more) {
  if (reply->used + more < reply->room) return;
  reply->room = 2 * (reply->used + more) + 256;
  reply->text = realloc(reply->text, reply->room);
  if (reply->text != NULL) return;
  fprintf(stderr, "dynamiccl-worker: out of memory\n");
  _exit(1);
}

void reply_format(struct reply *reply, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  grow(reply, (size_t)n + 1);
  reply->used += (size_t)vsnprintf(reply->text + reply->used, reply->room - reply->used, format, again);
  va_end(again);
  va_end(args);
}

void reply_quote(struct reply *reply, const char *text) {
  reply_format(reply, "\"");
  for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
    if (*p == '"' || *p == '\\') reply_format(reply, "\\%c", *p);
    else if (*p < 0x20 || *p >= 0x7f) reply_format(reply, "\\u%04x", *p); /* a byte that is no UTF-8 spoils no line */
    else reply_format(reply, "%c", *p);
  }
  reply_format(reply, "\"");
}

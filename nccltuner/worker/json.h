/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands and replies: one flat JSON object a line.
 */
#ifndef WORKER_JSON_H
#define WORKER_JSON_H

#include <stddef.h>

#define JSON_FIELDS 16

enum json_kind { JSON_TEXT, JSON_NUMBER, JSON_OTHER /* true, false, null */ };

struct json_field {
  const char *name, *text;
  double number;
  enum json_kind kind;
};

struct json {
  int n;
  struct json_field fields[JSON_FIELDS];
};

/* Reads one object of texts, numbers, true, false and null; texts point into line, which is changed. NULL, or what is
 * wrong. Nothing that RFC 8259 forbids is accepted, nor nested values, a name that comes twice or \u0000. */
const char *json_parse(struct json *json, char *line);
const struct json_field *json_find(const struct json *json, const char *name); /* NULL: none */

/* A reply that grows. */
struct reply {
  char *text;
  size_t used, room;
};
void reply_format(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "text" with quotes, as JSON. */
void reply_quote(struct reply *reply, const char *text);

#endif

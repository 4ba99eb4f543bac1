/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

static char *blank(char *p) { return p + strspn(p, " \t\r\n"); }

static int hex4(const char *p, unsigned *value) {
  *value = 0;
  for (int i = 0; i < 4; i++) {
    const char *digits = "0123456789abcdefABCDEF", *at = p[i] == '\0' ? NULL : strchr(digits, p[i]);
    if (at == NULL) return -1;
    unsigned digit = (unsigned)(at - digits);
    *value = *value * 16 + (digit > 15 ? digit - 6 : digit);
  }
  return 0;
}

/* At most three bytes for six of input: the text never outgrows its place. */
static char *put_utf8(char *to, unsigned c) {
  if (c < 0x80) {
    *to++ = (char)c;
  } else if (c < 0x800) {
    *to++ = (char)(0xc0 | c >> 6);
    *to++ = (char)(0x80 | (c & 63));
  } else {
    *to++ = (char)(0xe0 | c >> 12);
    *to++ = (char)(0x80 | (c >> 6 & 63));
    *to++ = (char)(0x80 | (c & 63));
  }
  return to;
}

/* p is at the opening quote; text is unescaped in place. The end, or NULL. */
static char *read_text(char *p, const char **text) {
  char *to = ++p;
  *text = to;
  for (; *p != '"'; p++) {
    if ((unsigned char)*p < 0x20) return NULL; /* the line's end too */
    if (*p != '\\') {
      *to++ = *p;
      continue;
    }
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    unsigned c;
    const char *at = *++p == '\0' ? NULL : strchr(from, *p);
    if (at != NULL) {
      *to++ = into[at - from];
    } else {
      /* Half of a surrogate pair is no character; nothing that is said here needs a pair. */
      if (*p != 'u' || hex4(p + 1, &c) != 0 || c == 0 || (c >= 0xd800 && c < 0xe000)) return NULL;
      to = put_utf8(to, c);
      p += 4;
    }
  }
  *to = '\0';
  return p + 1;
}

/* RFC 8259's grammar; strtod alone would take hex, inf and leading zeros. */
static char *read_number(char *p, double *value) {
  char *start = p;
  if (*p == '-') p++;
  if (*p == '0') p++;
  else if (*p >= '1' && *p <= '9') p += strspn(p, "0123456789");
  else return NULL;
  if (*p == '.') {
    size_t n = strspn(++p, "0123456789");
    if (n == 0) return NULL;
    p += n;
  }
  if (*p == 'e' || *p == 'E') {
    p++;
    if (*p == '+' || *p == '-') p++;
    size_t n = strspn(p, "0123456789");
    if (n == 0) return NULL;
    p += n;
  }
  char *end;
  *value = strtod(start, &end);
  return end == p ? p : NULL;
}

static char *read_value(char *p, struct json_field *field) {
  static const char *const words[] = {"true", "false", "null"};
  if (*p == '"') {
    field->kind = JSON_TEXT;
    return read_text(p, &field->text);
  }
  for (int i = 0; i < 3; i++) {
    if (strncmp(p, words[i], strlen(words[i])) != 0) continue;
    field->kind = JSON_OTHER;
    return p + strlen(words[i]);
  }
  field->kind = JSON_NUMBER;
  return read_number(p, &field->number);
}

const char *json_parse(struct json *json, char *line) {
  json->n = 0;
  char *p = blank(line);
  if (*p != '{') return "want a JSON object";
  p = blank(p + 1);
  while (*p != '}') {
    if (json->n == JSON_FIELDS) return "too many fields";
    struct json_field field = {0};
    if (*p != '"' || (p = read_text(p, &field.name)) == NULL) return "want a field name in quotes";
    p = blank(p);
    if (*p++ != ':') return "want : after a field name";
    if ((p = read_value(blank(p), &field)) == NULL) return "want a text, a number, true, false or null after :";
    if (json_find(json, field.name) != NULL) return "a field comes twice";
    json->fields[json->n++] = field;
    p = blank(p);
    if (*p != ',' && *p != '}') return "want , or } after a value";
    if (*p != ',') continue;
    p = blank(p + 1);
    if (*p != '"') return "want a field name in quotes";
  }
  return *blank(p + 1) == '\0' ? NULL : "want nothing after }";
}

const struct json_field *json_find(const struct json *json, const char *name) {
  for (int i = 0; i < json->n; i++)
    if (strcmp(json->fields[i].name, name) == 0) return &json->fields[i];
  return NULL;
}

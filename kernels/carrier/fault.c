/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

enum { MOST_BYTES = 4096 }; /* of a file */

uint64_t carrier_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct kind {
  const char *variable, *line;
  double none, least, most;
} kinds[] = {{"DYNAMICCL_CARRIER_LATENCY_US", "latency_us", 0, 0, 1e9},
             {"DYNAMICCL_CARRIER_GBS", "gbs", 0, 1e-6, 1e6},
             {"DYNAMICCL_CARRIER_DEAD_RANK", "dead_rank", -1, 0, 1e6}};
enum { LATENCY_US, GBS, DEAD_RANK, KINDS };

static bool number(const char *text, const struct kind *kind, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && (*value == kind->none || (*value >= kind->least && *value <= kind->most));
}

static void take(struct carrier_faults *faults, const double *values) {
  faults->latencyNs = (uint64_t)(values[LATENCY_US] * 1e3);
  faults->gbs = values[GBS];
  faults->deadRank = (int)values[DEAD_RANK];
}

bool carrier_faults_read(struct carrier_faults *faults) {
  static atomic_int reads; /* each communicator is two; what is in force is said once */
  double values[KINDS] = {kinds[LATENCY_US].none, kinds[GBS].none, kinds[DEAD_RANK].none};
  const bool first = atomic_fetch_add(&reads, 1) == 0;
  for (int k = 0; k < KINDS; k++) {
    const char *text = getenv(kinds[k].variable);
    if (text == NULL || *text == '\0') continue;
    if (!number(text, &kinds[k], &values[k])) {
      carrier_warn("%s=%s: want %g to %g", kinds[k].variable, text, kinds[k].least, kinds[k].most);
      return false;
    }
    if (first) carrier_warn("%s=%s: a fault on purpose is in force", kinds[k].variable, text);
  }
  *faults = (struct carrier_faults){.variables = {values[LATENCY_US], values[GBS], values[DEAD_RANK]}};
  take(faults, values);
  return true;
}

/* ---- the file ---- */

/* False: this line is none. */
static bool read_line(const char *line, double *values) {
  char name[32], value[64], more;
  int words = sscanf(line, "%31s %63s %c", name, value, &more);
  if (words <= 0 || *name == '#') return true;
  for (int k = 0; k < KINDS; k++)
    if (strcmp(name, kinds[k].line) == 0) return words == 2 && number(value, &kinds[k], &values[k]);
  return false;
}

/* The line that is none; NULL: all are. */
static const char *read_lines(char *text, double *values) {
  char *rest;
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
    if (!read_line(line, values)) return line;
  return NULL;
}

/* Says it if it is not what was said last in this process, of whose communicators each looks for itself. */
static void say_once(const char *text) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char last[256];
  pthread_mutex_lock(&lock);
  if (strcmp(last, text) != 0) {
    snprintf(last, sizeof last, "%s", text);
    carrier_warn("%s", text);
  }
  pthread_mutex_unlock(&lock);
}

static void say(const char *path, const double *values) {
  char text[256];
  int used = snprintf(text, sizeof text, "%.150s: faults on purpose:", path);
  if (values[LATENCY_US] > 0) used += snprintf(text + used, sizeof text - (size_t)used, " %g us later,", values[LATENCY_US]);
  if (values[GBS] > 0) used += snprintf(text + used, sizeof text - (size_t)used, " %g GB/s,", values[GBS]);
  if (values[DEAD_RANK] >= 0) used += snprintf(text + used, sizeof text - (size_t)used, " rank %g dead,", values[DEAD_RANK]);
  if (text[used - 1] == ',') text[used - 1] = '\0';
  else snprintf(text + used, sizeof text - (size_t)used, " none");
  say_once(text);
}

static bool is_as(const struct carrier_faults *faults, const double *values) {
  struct carrier_faults wanted;
  take(&wanted, values);
  return faults->latencyNs == wanted.latencyNs && faults->gbs == wanted.gbs && faults->deadRank == wanted.deadRank;
}

void carrier_faults_look(struct carrier_faults *faults) {
  const char *path = getenv("DYNAMICCL_CARRIER_FAULTS");
  if (path == NULL || *path == '\0') return;
  double values[KINDS] = {faults->variables.latencyUs, faults->variables.gbs, faults->variables.deadRank};
  char text[MOST_BYTES], said[256];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t bytes = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (bytes < 0) return;
  text[bytes] = '\0';
  const char *wrong = read_lines(text, values);
  if (wrong != NULL) {
    snprintf(said, sizeof said, "%.150s: \"%.60s\" is no fault: nothing is changed", path, wrong);
    say_once(said);
  } else if (!is_as(faults, values)) {
    take(faults, values);
    say(path, values);
  }
}

uint64_t carrier_due_ns(struct carrier_faults *faults, size_t bytes) {
  if (faults->latencyNs == 0 && faults->gbs == 0) return 0;
  uint64_t now = carrier_now_ns(), sent = now;
  if (faults->gbs > 0) {
    if (faults->linkFreeNs > now) sent = faults->linkFreeNs;
    faults->linkFreeNs = sent += (uint64_t)((double)bytes / faults->gbs);
  }
  return sent + faults->latencyNs;
}

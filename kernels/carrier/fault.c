/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "say.h"

uint64_t carrier_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static atomic_int reads; /* each communicator is two; what is in force is said once */

static bool number(const char *name, double least, double most, double *value) {
  const char *text = getenv(name);
  char *end;
  if (text == NULL || *text == '\0') return true;
  double read = strtod(text, &end);
  if (*end != '\0' || !(read >= least && read <= most)) {
    carrier_warn("%s=%s: want %g to %g", name, text, least, most);
    return false;
  }
  *value = read;
  if (atomic_load(&reads) == 1) carrier_warn("%s=%s: a fault on purpose is in force", name, text);
  return true;
}

bool carrier_faults_read(struct carrier_faults *faults) {
  double latencyUs = 0, dead = -1;
  *faults = (struct carrier_faults){0};
  atomic_fetch_add(&reads, 1);
  if (!number("DYNAMICCL_CARRIER_LATENCY_US", 0, 1e9, &latencyUs) || !number("DYNAMICCL_CARRIER_GBS", 1e-6, 1e6, &faults->gbs) ||
      !number("DYNAMICCL_CARRIER_DEAD_RANK", 0, 1e6, &dead))
    return false;
  faults->latencyNs = (uint64_t)(latencyUs * 1e3);
  faults->deadRank = (int)dead;
  return true;
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

/* LOCAL */
#include <stdio.h>
#include <string.h>
void carrier_faults_look(struct carrier_faults *faults) {
  static _Thread_local uint64_t last;
  const char *path = getenv("DYNAMICCL_CARRIER_FAULTS");
  if (path == NULL || carrier_now_ns() - last < 20000000) return;
  last = carrier_now_ns();
  FILE *f = fopen(path, "re");
  if (f == NULL) return;
  char name[32]; double v; double lat = 0, gbs = 0; int dead = -1;
  while (fscanf(f, "%31s %lf", name, &v) == 2) {
    if (!strcmp(name, "latency_us")) lat = v;
    if (!strcmp(name, "gbs")) gbs = v;
    if (!strcmp(name, "dead_rank")) dead = (int)v;
  }
  fclose(f);
  faults->latencyNs = (uint64_t)(lat * 1e3);
  faults->gbs = gbs;
  faults->deadRank = dead;
}

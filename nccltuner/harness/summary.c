/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank did, as JSON lines: one "run", one "phase" a phase, one "bucket" a collective and size, one "latency".
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "log.h"
#include "nccl.h"

static long count_fds(void) {
  DIR *dir = opendir("/proc/self/fd");
  long n = -3; /* ".", ".." and the directory itself */
  while (dir != NULL && readdir(dir) != NULL) n++;
  if (dir != NULL) closedir(dir);
  return n;
}

static long count_maps(void) {
  FILE *file = fopen("/proc/self/maps", "r");
  long n = 0;
  for (int c; file != NULL && (c = fgetc(file)) != EOF;) n += c == '\n';
  if (file != NULL) fclose(file);
  return n;
}

static long resident_kib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file != NULL && fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  if (file != NULL) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void json_string(FILE *out, const char *key, const char *text) {
  fprintf(out, "\"%s\":\"", key);
  for (; *text != '\0'; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
    else if (c < 0x20) fprintf(out, "\\u%04x", c);
    else fputc(c, out);
  }
  fputs("\",", out);
}

static void sums(FILE *out, const struct bucket_sum *s) {
  fprintf(out, "\"calls\":%llu,\"chosen\":%llu,\"costUs\":%.3f,\"defaultUs\":%.3f,\"bestUs\":%.3f}\n",
          (unsigned long long)s->calls, (unsigned long long)s->chosen, s->costNs / 1000, s->defaultNs / 1000,
          s->bestNs / 1000);
}

static void write_run(FILE *out, const struct rank *rank) {
  const struct plan *plan = rank->plan;
  fprintf(out, "{\"kind\":\"run\",\"rank\":%d,\"result\":%d,", rank->rank, rank->result);
  json_string(out, "error", rank->error);
  json_string(out, "tuner", rank->tuner);
  json_string(out, "profiler", rank->profiler);
  fprintf(out, "\"tunerAbi\":%d,\"profilerAbi\":%d,\"nccl\":%d,\"ranks\":%d,\"nodes\":%d,", rank->tunerAbi,
          rank->profilerAbi, plan->options->ncclVersion, plan->nRanks, plan->nNodes);
  fprintf(out, "\"comms\":%llu,\"collInfoCalls\":%llu,\"collectives\":%llu,\"seconds\":%.6f,",
          (unsigned long long)rank->numComms, (unsigned long long)rank->collInfoCalls,
          (unsigned long long)rank->collectives, rank->seconds);
  /* Of the whole process: threads report the same. */
  fprintf(out, "\"processEvents\":%lu,\"processWarnings\":%lu,\"processFds\":%ld,", profiler_events(), nccl_warnings(),
          count_fds());
  fprintf(out, "\"processMaps\":%ld,\"processRssKiB\":%ld}\n", count_maps(), resident_kib());
}

static void write_phases(FILE *out, const struct rank *rank) {
  const struct plan *plan = rank->plan;
  for (int p = 0; p < plan->numPhases; p++) {
    const struct phase *phase = &plan->phases[p];
    struct bucket_sum total = {0};
    for (int i = 0; i < phase->numItems; i++) {
      const struct bucket_sum *s = &rank->sums[p * MAX_ITEMS + i];
      fprintf(out, "{\"kind\":\"bucket\",\"rank\":%d,\"phase\":%d,\"collective\":\"%s\",\"bytes\":%llu,", rank->rank, p,
              table_collective_name(phase->items[i].func), (unsigned long long)phase->items[i].bytes);
      sums(out, s);
      total.calls += s->calls;
      total.chosen += s->chosen;
      total.costNs += s->costNs;
      total.defaultNs += s->defaultNs;
      total.bestNs += s->bestNs;
    }
    fprintf(out, "{\"kind\":\"phase\",\"rank\":%d,\"phase\":%d,", rank->rank, p);
    json_string(out, "table", phase->table.path);
    json_string(out, "condition", phase->table.condition);
    sums(out, &total);
  }
}

/* The bin in which the share of all calls is reached. */
static size_t quantile(const struct latency *l, double share) {
  uint64_t seen = 0;
  for (size_t bin = 0; bin <= LATENCY_BINS; bin++) {
    seen += l->bins[bin];
    if ((double)seen >= share * (double)l->count) return bin;
  }
  return LATENCY_BINS;
}

static void write_latency(FILE *out, const struct rank *rank) {
  const struct latency *l = rank->latency;
  if (l == NULL || l->count == 0) return;
  double timer = 1e9; /* what every measurement holds of the clock itself */
  for (int i = 0; i < 1000; i++) {
    double began = tick_ns(), took = tick_ns() - began;
    if (took < timer) timer = took;
  }
  fprintf(out, "{\"kind\":\"latency\",\"rank\":%d,\"count\":%llu,\"p50Ns\":%zu,\"p99Ns\":%zu,\"p999Ns\":%zu,"
          "\"maxNs\":%.0f,\"timerNs\":%.1f}\n", rank->rank, (unsigned long long)l->count, quantile(l, 0.5),
          quantile(l, 0.99), quantile(l, 0.999), l->max, timer);
}

int summary_write(const struct rank *rank) {
  char *text = NULL, name[4096];
  size_t size = 0;
  const char *path = rank->plan->options->summaryPath;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) return -1;
  write_run(out, rank);
  write_phases(out, rank);
  write_latency(out, rank);
  fclose(out);
  if (path == NULL) {
    /* One write a line: ranks share the stream, and a pipe keeps what is shorter than PIPE_BUF together. */
    int failed = 0;
    for (char *line = text, *end; !failed && (end = strchr(line, '\n')) != NULL; line = end + 1)
      failed = write(STDOUT_FILENO, line, (size_t)(end + 1 - line)) != end + 1 - line;
    free(text);
    return failed ? -1 : 0;
  }
  FILE *file = log_path(path, (unsigned)rank->rank, name, sizeof name) == 0 ? fopen(name, "w") : NULL;
  int failed = file == NULL || fwrite(text, 1, size, file) != size;
  if (file != NULL) failed |= fclose(file) != 0;
  if (failed) fprintf(stderr, "dynamiccl-rank: summary %s: %s\n", path, strerror(errno));
  free(text);
  return failed ? -1 : 0;
}

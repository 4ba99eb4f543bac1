/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const collectives[TABLE_COLLECTIVES] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                           "AllReduce"};
static const char *const algorithms[TABLE_ALGORITHMS] = {"Tree", "Ring", "CollnetDirect", "CollnetChain",
                                                         "NVLS", "NVLSTree", "PAT"};
static const char *const protocols[TABLE_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const columns[] = {"machine", "nccl", "nranks", "nnodes", "transport", "condition", "collective",
                                      "bytes", "path", "algorithm", "protocol", "channels", "median_us"};
enum { MACHINE, NCCL, NRANKS, NNODES, TRANSPORT, CONDITION, COLLECTIVE, BYTES, PATH, ALGORITHM, PROTOCOL, CHANNELS,
       MEDIAN_US, NUM_COLUMNS };

static int index_of(const char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcasecmp(names[i], name) == 0) return i;
  return -1;
}

int table_collective(const char *name) { return index_of(collectives, TABLE_COLLECTIVES, name); }

const char *table_collective_name(int func) {
  return func >= 0 && func < TABLE_COLLECTIVES ? collectives[func] : "Invalid";
}

/* Splits a line at commas in place; the number of fields. */
static int split(char *line, char **fields, int max) {
  int n = 0;
  for (char *p = line;; p++) {
    if (n < max) fields[n] = line;
    if (*p != ',' && *p != '\0') continue;
    n++;
    if (*p == '\0') return n;
    *p = '\0';
    line = p + 1;
  }
}

static int whole(const char *text, uint64_t max, uint64_t *value) {
  char *end;
  errno = 0;
  *value = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value <= max;
}

static struct table_cell *cell_at(struct table *table, int collective, uint64_t bytes) {
  struct table_cell *cells = table->cells[collective];
  int n = table->numCells[collective], i = 0;
  while (i < n && cells[i].bytes < bytes) i++;
  if (i < n && cells[i].bytes == bytes) return &cells[i];
  if (n == TABLE_SIZES) return NULL;
  if (cells == NULL) {
    cells = table->cells[collective] = calloc(TABLE_SIZES, sizeof *cells);
    if (cells == NULL) return NULL;
  }
  memmove(&cells[i + 1], &cells[i], (size_t)(n - i) * sizeof *cells);
  memset(&cells[i], 0, sizeof cells[i]);
  cells[i].bytes = bytes;
  table->numCells[collective]++;
  return &cells[i];
}

static int add_point(struct table_cell *cell, int algorithm, int protocol, int channels, double costNs) {
  struct table_point *points = cell->points[algorithm][protocol];
  int *n = &cell->numPoints[algorithm][protocol], i = 0;
  while (i < *n && points[i].channels < channels) i++;
  if (i < *n && points[i].channels == channels) {
    points[i].costNs += (costNs - points[i].costNs) / ++points[i].samples;
    return 0;
  }
  if (*n == TABLE_POINTS) return -1;
  memmove(&points[i + 1], &points[i], (size_t)(*n - i) * sizeof *points);
  points[i] = (struct table_point){channels, 1, costNs};
  ++*n;
  return 0;
}

/* One data line; NULL, or what is wrong with it. */
static const char *add_row(struct table *table, char **f) {
  uint64_t nRanks, nNodes, bytes, channels = 0;
  char *end;
  if (!whole(f[NRANKS], 65536, &nRanks) || nRanks < 2) return "nranks: want a whole number from 2 to 65536";
  if (!whole(f[NNODES], nRanks, &nNodes) || nNodes < 1) return "nnodes: want a whole number from 1 to nranks";
  if (nRanks % nNodes != 0) return "nnodes: must divide nranks";
  if (table->rows == 0) {
    table->nRanks = (int)nRanks;
    table->nNodes = (int)nNodes;
    snprintf(table->machine, sizeof table->machine, "%s", f[MACHINE]);
    snprintf(table->transport, sizeof table->transport, "%s", f[TRANSPORT]);
    snprintf(table->condition, sizeof table->condition, "%s", f[CONDITION]);
  } else if ((int)nRanks != table->nRanks || (int)nNodes != table->nNodes ||
             strcmp(f[TRANSPORT], table->transport) != 0 || strcmp(f[CONDITION], table->condition) != 0) {
    return "nranks, nnodes, transport or condition differs from the first row: put one machine and condition in a file";
  }
  table->rows++;
  int collective = table_collective(f[COLLECTIVE]);
  if (collective < 0 || (strcmp(f[PATH], "default") != 0 && strcmp(f[PATH], "collective") != 0)) return NULL;
  if (!whole(f[BYTES], UINT64_MAX / 2, &bytes) || bytes == 0) return "bytes: want a whole number from 1";
  double us = strtod(f[MEDIAN_US], &end);
  if (end == f[MEDIAN_US] || *end != '\0' || !(us > 0) || us > 1e9) return "median_us: want microseconds above 0";
  struct table_cell *cell = cell_at(table, collective, bytes);
  if (cell == NULL) return "bytes: too many sizes of one collective (at most 32)";
  if (f[PATH][0] == 'd') {
    cell->defaultNs += (us * 1000 - cell->defaultNs) / ++cell->defaultSamples;
    return NULL;
  }
  int algorithm = index_of(algorithms, TABLE_ALGORITHMS, f[ALGORITHM]);
  int protocol = index_of(protocols, TABLE_PROTOCOLS, f[PROTOCOL]);
  if (algorithm < 0) return "algorithm: want Tree, Ring, CollnetDirect, CollnetChain, NVLS, NVLSTree or PAT";
  if (protocol < 0) return "protocol: want LL, LL128 or Simple";
  if (!whole(f[CHANNELS], 64, &channels) || channels == 0) return "channels: want a whole number from 1 to 64";
  if (add_point(cell, algorithm, protocol, (int)channels, us * 1000) != 0)
    return "channels: too many channel counts of one choice (at most 16)";
  return NULL;
}

int table_parse(struct table *table, const char *name, char *text, char *error, size_t errorSize) {
  char *fields[NUM_COLUMNS], *line;
  int number = 0;
  memset(table, 0, sizeof *table);
  snprintf(table->path, sizeof table->path, "%s", name);
  while ((line = strsep(&text, "\n")) != NULL) {
    number++;
    line[strcspn(line, "\r")] = '\0';
    if (*line == '\0' && number > 1) continue;
    int n = split(line, fields, NUM_COLUMNS);
    const char *wrong = NULL;
    if (n != NUM_COLUMNS) {
      wrong = "want 13 columns: machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,"
              "protocol,channels,median_us";
    } else if (number == 1) {
      for (int i = 0; i < NUM_COLUMNS; i++)
        if (strcmp(fields[i], columns[i]) != 0) wrong = "header: the columns must have the names and order of --help";
    } else {
      wrong = add_row(table, fields);
    }
    if (wrong != NULL) {
      snprintf(error, errorSize, "table %s line %d: %s", name, number, wrong);
      table_free(table);
      return -1;
    }
  }
  int defaults = 0;
  for (int c = 0; c < TABLE_COLLECTIVES; c++)
    for (int i = 0; i < table->numCells[c]; i++) defaults += table->cells[c][i].defaultNs > 0;
  if (defaults == 0) {
    snprintf(error, errorSize, "table %s: no row with path default: NCCL's own cost must be recorded", name);
    table_free(table);
    return -1;
  }
  return 0;
}

int table_load(struct table *table, const char *path, char *error, size_t errorSize) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    snprintf(error, errorSize, "table %s: %s", path, strerror(errno));
    return -1;
  }
  char *text = NULL;
  size_t size = 0;
  ssize_t length = getdelim(&text, &size, '\0', file); /* the whole file: text holds no zero byte */
  int failed = ferror(file);
  fclose(file);
  if (length <= 0 || failed) {
    snprintf(error, errorSize, "table %s: empty or not readable: give a CSV file as in --help", path);
    free(text);
    return -1;
  }
  int result = table_parse(table, path, text, error, errorSize);
  free(text);
  return result;
}

void table_free(struct table *table) {
  for (int c = 0; c < TABLE_COLLECTIVES; c++) free(table->cells[c]);
  memset(table, 0, sizeof *table);
}

const struct table_cell *table_find(const struct table *table, int collective, uint64_t bytes) {
  if (collective < 0 || collective >= TABLE_COLLECTIVES || bytes == 0) return NULL;
  const struct table_cell *best = NULL;
  double nearest = INFINITY;
  for (int i = 0; i < table->numCells[collective]; i++) {
    const struct table_cell *cell = &table->cells[collective][i];
    double distance = fabs(log2((double)cell->bytes) - log2((double)bytes));
    if (distance < nearest) { /* strictly: the smaller of two equally near sizes stays */
      nearest = distance;
      best = cell;
    }
  }
  return best;
}

double table_cost(const struct table_cell *cell, int algorithm, int protocol, int channels) {
  if (algorithm < 0 || algorithm >= TABLE_ALGORITHMS || protocol < 0 || protocol >= TABLE_PROTOCOLS) return 0;
  int n = cell->numPoints[algorithm][protocol];
  const struct table_point *p = cell->points[algorithm][protocol];
  if (n == 0) return 0;
  if (channels <= p[0].channels) return p[0].costNs;
  for (int i = 1; i < n; i++) {
    if (channels > p[i].channels) continue;
    double low = log2(p[i - 1].channels), high = log2(p[i].channels);
    double at = (log2(channels) - low) / (high - low);
    return p[i - 1].costNs + at * (p[i].costNs - p[i - 1].costNs);
  }
  return p[n - 1].costNs;
}

struct table_best table_best(const struct table_cell *cell, uint32_t allowed, int maxChannels) {
  struct table_best best = {cell->defaultNs, -1, -1, 0};
  for (int a = 0; a < TABLE_ALGORITHMS; a++) {
    for (int p = 0; p < TABLE_PROTOCOLS; p++) {
      if ((allowed >> (3 * a + p) & 1) == 0) continue;
      for (int i = 0; i < cell->numPoints[a][p]; i++) {
        const struct table_point *point = &cell->points[a][p][i];
        if (point->channels > maxChannels || (best.costNs > 0 && point->costNs >= best.costNs)) continue;
        best = (struct table_best){point->costNs, a, p, point->channels};
      }
    }
  }
  return best;
}

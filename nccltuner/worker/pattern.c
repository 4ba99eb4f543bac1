/* SPDX-License-Identifier: Apache-2.0
 *
 * What is sent and what must arrive. A rank sends whole numbers from 1 to 4, so sums over up to 64 ranks are at most
 * 256 and exact in bf16 whatever the order. The numbers come from a table whose length is prime, each rank starting at
 * another place of it: a share, chunk or rank in the wrong place shows, since their sizes are round.
 */
#include <stdio.h>
#include <string.h>

#include "worker.h"

#define PERIOD 4099

static uint16_t tables[MAX_RANKS + 1][PERIOD]; /* of each rank, and of the sum; from element 0 of a send buffer */

static uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static unsigned number_at(int rank, size_t i) {
  uint32_t x = (uint32_t)((i + (size_t)rank * 1009) % PERIOD) * 2654435761u; /* Knuth's multiplicative hash */
  return 1 + (x >> 30);
}

static uint16_t *sums(const struct worker *worker) { return tables[worker->nRanks]; }

static void build(const struct worker *worker) {
  for (size_t i = 0; i < PERIOD; i++) {
    unsigned sum = 0;
    for (int r = 0; r < worker->nRanks; r++) {
      tables[r][i] = bf16_of((float)number_at(r, i));
      sum += number_at(r, i);
    }
    sums(worker)[i] = bf16_of((float)sum);
  }
}

int pattern_fill(struct worker *worker) {
  build(worker);
  uint16_t *staging = worker->staging;
  size_t total = worker->maxBytes / 2, room = STAGING_BYTES / 2;
  for (size_t at = 0; at < total; at += room) {
    size_t n = total - at < room ? total - at : room;
    for (size_t i = 0; i < n; i++) staging[i] = tables[worker->rank][(at + i) % PERIOD];
    CUDA(worker, cuMemcpyHtoD_v2, worker->send + at * 2, staging, n * 2);
  }
  return 0;
}

/* All ones are a bf16 that is no number: no collective leaves it by accident. */
int pattern_poison(struct worker *worker, const struct shape *shape) {
  if (shape->outputs == 0) return 0;
  CUDA(worker, cuMemsetD8Async, worker->recv, 0xff, shape->outputs * 2, worker->stream);
  return 0;
}

/* Where the n elements from element at of recv come from: the table, its first element, and how far that goes. */
static size_t expected(const struct worker *worker, const struct shape *shape, size_t at, const uint16_t **table,
                       size_t *first) {
  size_t share = shape->count, part = at / share, rest = share - at % share;
  switch (shape->collective) {
    case ALL_GATHER: *table = tables[part]; *first = at % share; return rest;
    case ALL_TO_ALL: *table = tables[part]; *first = (size_t)worker->rank * share + at % share; return rest;
    case REDUCE_SCATTER: *table = sums(worker); *first = (size_t)worker->rank * share + at; return rest;
    case BROADCAST: *table = tables[0]; *first = at; return rest;
    default: *table = sums(worker); *first = at; return rest;
  }
}

/* n elements of recv from element at; the number that is wrong. */
static size_t compare(const struct worker *worker, const struct shape *shape, const uint16_t *got, size_t at, size_t n,
                      size_t wrong) {
  for (size_t i = 0; i < n;) {
    const uint16_t *table;
    size_t first, run = expected(worker, shape, at + i, &table, &first);
    first %= PERIOD;
    if (run > n - i) run = n - i;
    if (run > PERIOD - first) run = PERIOD - first;
    if (memcmp(got + i, table + first, run * 2) != 0) {
      for (size_t k = 0; k < run; k++) {
        if (got[i + k] == table[first + k]) continue;
        if (wrong++ == 0)
          fprintf(stderr, "dynamiccl-worker: rank %d: %s of %zu bytes: element %zu is bf16 0x%04x and not 0x%04x\n",
                  worker->rank, shape->name, shape->bytes, at + i + k, got[i + k], table[first + k]);
      }
    }
    i += run;
  }
  return wrong;
}

int pattern_verify(struct worker *worker, const struct shape *shape, size_t *wrong) {
  *wrong = 0;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  size_t room = STAGING_BYTES / 2;
  for (size_t at = 0; at < shape->outputs; at += room) {
    size_t n = shape->outputs - at < room ? shape->outputs - at : room;
    CUDA(worker, cuMemcpyDtoH_v2, worker->staging, worker->recv + at * 2, n * 2);
    *wrong = compare(worker, shape, worker->staging, at, n, *wrong);
  }
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run will call: phases, and in each phase the collectives and sizes with their recorded costs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "rng.h"

/* Counts as NCCL has them for nBytes of getCollInfo: collTaskAppend, enqueue.cc:2474, and getAlgoInfo, enqueue.cc:1923:
 * nBytes is the whole buffer for AllGather and ReduceScatter, so a count is per rank there. */
static void set_counts(struct item *item, int nRanks) {
  int perRank = item->func == FUNC_ALLGATHER || item->func == FUNC_REDUCESCATTER;
  size_t bytes = (size_t)item->bytes / (perRank ? (size_t)nRanks : 1);
  item->userDatatype = "ncclFloat32";
  item->userCount = bytes < 4 ? 1 : bytes / 4;
  int asBytes = item->func == FUNC_ALLGATHER || item->func == FUNC_BROADCAST;
  item->datatype = asBytes ? "ncclInt8" : "ncclFloat32";
  item->elementSize = asBytes ? 1 : 4;
  item->count = item->userCount * (asBytes ? 4 : 1);
  item->bytes = item->count * (size_t)item->elementSize * (perRank ? (size_t)nRanks : 1);
}

const char *plan_add_item(struct plan *plan, struct phase *phase, int func, uint64_t bytes, double weight) {
  if (phase->numItems == MAX_ITEMS) return "too many collectives and sizes (at most 256)";
  struct item *item = &phase->items[phase->numItems];
  *item = (struct item){.func = func, .bytes = bytes, .weight = weight};
  set_counts(item, plan->nRanks);
  item->cell = table_find(&phase->table, func, item->bytes);
  if (item->cell == NULL || !(item->cell->defaultNs > 0)) return "this collective was not recorded";
  float costs[NUM_ALGOS][NUM_PROTOS];
  int algo, proto, nWarps;
  tuning_cost_table(&plan->tuning, func, item->bytes, 1, costs);
  item->defaultNs = item->cell->defaultNs;
  uint32_t allowed = tuning_allowed(costs);
  if (tuning_select(costs, &algo, &proto) != 0) return "NCCL_ALGO and NCCL_PROTO leave nothing for this collective";
  if (plan->tuning.userForced) { /* the recorded default is that of an NCCL without these variables */
    int channels = tuning_channels(&plan->tuning, algo, proto, item->bytes, &nWarps);
    item->defaultNs = table_cost(item->cell, algo, proto, channels);
    if (!(item->defaultNs > 0)) return "what NCCL_ALGO and NCCL_PROTO ask for was not recorded";
  }
  item->bestNs = table_best(item->cell, allowed, plan->tuning.nChannels).costNs;
  if (plan->tuning.userForced && item->bestNs > item->defaultNs) item->bestNs = item->defaultNs;
  phase->totalWeight += weight;
  phase->numItems++;
  return NULL;
}

static int in_all_tables(const struct plan *plan, int func, uint64_t bytes) {
  for (int p = 0; p < plan->numPhases; p++) {
    const struct table_cell *cell = table_find(&plan->phases[p].table, func, bytes);
    if (cell == NULL || cell->bytes != bytes || !(cell->defaultNs > 0)) return 0;
  }
  return 1;
}

static int items_from_tables(struct plan *plan, struct phase *phase, int common, char *error, size_t errorSize) {
  const struct options *o = plan->options;
  for (int f = 0; f < TABLE_COLLECTIVES; f++) {
    for (int i = 0; i < phase->table.numCells[f]; i++) {
      const struct table_cell *cell = &phase->table.cells[f][i];
      if (cell->bytes > o->maxBytes || !(cell->defaultNs > 0)) continue;
      if (common && !in_all_tables(plan, f, cell->bytes)) continue;
      const char *wrong = plan_add_item(plan, phase, f, cell->bytes, 1);
      if (wrong == NULL) continue;
      snprintf(error, errorSize, "table %s: %s %llu: %s", phase->table.path, table_collective_name(f),
               (unsigned long long)cell->bytes, wrong);
      return -1;
    }
  }
  return 0;
}

static int items_from_file(struct plan *plan, struct phase *phase, char *error, size_t errorSize) {
  const char *path = plan->options->workload;
  char line[256], name[32];
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    snprintf(error, errorSize, "option --workload %s: %s: want common, phase or a file", path, strerror(errno));
    return -1;
  }
  const char *wrong = NULL;
  int number = 0;
  while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
    unsigned long long bytes;
    double weight = 1;
    number++;
    if (line[0] == '#' || line[0] == '\n') continue;
    int fields = sscanf(line, "%31[^,],%llu,%lf", name, &bytes, &weight);
    int func = fields >= 2 ? table_collective(name) : -1;
    if (fields < 2 || bytes == 0 || !(weight > 0)) wrong = "want COLLECTIVE,BYTES,WEIGHT";
    else if (func < 0) wrong = "collective: want Broadcast, Reduce, AllGather, ReduceScatter or AllReduce";
    else wrong = plan_add_item(plan, phase, func, bytes, weight);
  }
  fclose(file);
  if (wrong != NULL) snprintf(error, errorSize, "workload %s line %d: %s", path, number, wrong);
  return wrong == NULL ? 0 : -1;
}

static int build_items(struct plan *plan, char *error, size_t errorSize) {
  const char *workload = plan->options->workload;
  if (workload == NULL) return 0;
  int common = strcmp(workload, "common") == 0, by_phase = strcmp(workload, "phase") == 0;
  for (int p = 0; p < plan->numPhases; p++) {
    struct phase *phase = &plan->phases[p];
    int failed = common || by_phase ? items_from_tables(plan, phase, common, error, errorSize)
                                    : items_from_file(plan, phase, error, errorSize);
    if (failed) return -1;
    if (phase->numItems > 0) continue;
    snprintf(error, errorSize, "phase %d: nothing to call: use --workload phase or a larger --max-bytes", p);
    return -1;
  }
  return 0;
}

int plan_build(struct plan *plan, const struct options *o, char *error, size_t errorSize) {
  memset(plan, 0, sizeof *plan);
  plan->options = o;
  int single = o->tablePath != NULL;
  for (int p = 0; p < (single ? 1 : o->numPhases); p++) {
    struct phase *phase = &plan->phases[p];
    if (table_load(&phase->table, single ? o->tablePath : o->phases[p].path, error, errorSize) != 0) return -1;
    plan->numPhases++;
    phase->firstCall = plan->calls;
    plan->calls += single ? o->calls : o->phases[p].calls;
    phase->endCall = plan->calls;
  }
  const struct table *first = &plan->phases[0].table;
  plan->nRanks = o->nRanks > 0 ? o->nRanks : first->nRanks;
  plan->nNodes = o->nNodes > 0 ? o->nNodes : first->nNodes;
  if (plan->nRanks > MAX_HARNESS_RANKS || plan->nRanks % plan->nNodes != 0) {
    snprintf(error, errorSize, "%d ranks on %d nodes: want at most %d ranks, the same number on every node: set "
             "--nranks and --nnodes", plan->nRanks, plan->nNodes, MAX_HARNESS_RANKS);
    return -1;
  }
  if (tuning_init(&plan->tuning, plan->nRanks, plan->nNodes, o->maxChannels, o->ll128Net, getenv("NCCL_ALGO"),
                  getenv("NCCL_PROTO"), error, errorSize) != 0)
    return -1;
  const char *noWindows = getenv("NCCL_SYM_NOWIN_ENABLE");
  plan->noWindows = noWindows != NULL && strcmp(noWindows, "1") == 0;
  return build_items(plan, error, errorSize);
}

void plan_free(struct plan *plan) {
  for (int p = 0; p < plan->numPhases; p++) table_free(&plan->phases[p].table);
}

const struct item *plan_item(const struct plan *plan, const struct phase *phase, int comm, uint64_t seq) {
  double at = rng_unit(rng_draw(plan->options->seed, RNG_WORK, (uint64_t)comm, seq, 0)) * phase->totalWeight;
  int i = 0;
  while (i < phase->numItems - 1 && at >= phase->items[i].weight) at -= phase->items[i++].weight;
  return &phase->items[i];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Every interleaving of a small world, breadth first, with the shipped steps of epoch.h. Each distinct state is kept
 * whole (no hash stands for a state), so "explored" means explored; a violation prints the shortest way to it.
 *
 * With DYN_MUTATE set the program expects to find a violation and fails when it finds none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../epoch.h"
#include "model.h"

#define MAX_STATES (48u << 20)

struct node {
  struct model_state state;
  uint32_t parent;
  uint8_t actor;
};

static struct node *nodes;
static uint32_t numNodes, capNodes;
static uint32_t *table; /* index + 1 of a node, open addressing */
static uint64_t tableSize;

static uint64_t hash_state(const struct model_state *s) {
  const unsigned char *bytes = (const unsigned char *)s;
  uint64_t h = 0, last = 0;
  size_t i = 0;
  for (uint64_t word; i + 8 <= sizeof *s; i += 8) {
    memcpy(&word, bytes + i, 8);
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  memcpy(&last, bytes + i, sizeof *s - i);
  h = (h ^ last) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

static void grow_table(void) {
  free(table);
  tableSize = tableSize ? tableSize * 2 : 1 << 16;
  table = calloc(tableSize, sizeof *table);
  if (!table) abort();
  for (uint32_t i = 0; i < numNodes; i++) {
    uint64_t at = hash_state(&nodes[i].state) & (tableSize - 1);
    while (table[at]) at = (at + 1) & (tableSize - 1);
    table[at] = i + 1;
  }
}

static void add_state(const struct model_state *s, uint32_t parent, int actor) {
  if (2 * (uint64_t)numNodes >= tableSize) grow_table();
  uint64_t at = hash_state(s) & (tableSize - 1);
  for (; table[at]; at = (at + 1) & (tableSize - 1))
    if (memcmp(&nodes[table[at] - 1].state, s, sizeof *s) == 0) return;
  if (numNodes == capNodes) {
    capNodes = capNodes ? capNodes * 2 : 1 << 12;
    nodes = realloc(nodes, capNodes * sizeof *nodes);
    if (!nodes || numNodes >= MAX_STATES) {
      fprintf(stderr, "epoch_check: the state space is larger than %u states\n", MAX_STATES);
      exit(2);
    }
  }
  nodes[numNodes] = (struct node){.state = *s, .parent = parent, .actor = (uint8_t)actor};
  table[at] = ++numNodes;
}

static void print_way(const struct model_config *config, uint32_t i, int lastActor) {
  if (i) print_way(config, nodes[i].parent, nodes[i].actor);
  int actor = lastActor;
  const struct model_state *s = &nodes[i].state;
  if (actor < config->ranks)
    printf("  rank %d: epoch %d, phase %d, pc %d", actor, s->ranks[actor].epoch, s->ranks[actor].phase,
           s->ranks[actor].pc);
  else if (actor == config->ranks)
    printf("  publisher: version %d, phase %d", s->publisher.version, s->publisher.phase);
  else
    printf("  rank %d crashes", actor - config->ranks - 1);
  printf(" (frontier %d/%d newest %d/%d)\n", s->frontier[0], s->frontier[1], s->newest[0], s->newest[1]);
}

/* Explores one world; NULL: nothing is ever violated. */
static const char *explore(const struct model_config *config, bool showWay) {
  struct model_state start;
  int longest = 0, changed = 0;
  numNodes = 0;
  tableSize = 0;
  model_init(&start, config);
  add_state(&start, 0, 0);
  for (uint32_t i = 0; i < numNodes; i++) {
    for (int rank = 0; nodes[i].state.crashes && rank < config->ranks; rank++) {
      int steps = model_solo(nodes[i].state, config, rank);
      if (steps < 0) {
        printf("{\"world\":\"%s\",\"violation\":\"a survivor that runs alone does not end\"}\n", config->name);
        return "a survivor that runs alone does not end";
      }
      if (steps > longest) longest = steps;
    }
    for (int e = 1; e <= config->epochs; e++)
      if (nodes[i].state.decidedSlot[e] != 255 && nodes[i].state.decidedSlot[e]) changed = 1;
    for (int actor = 0; actor < model_actors(config); actor++) {
      struct model_state s = nodes[i].state;
      const char *wrong;
      if (!model_step(&s, config, actor, &wrong)) continue;
      if (wrong) {
        if (showWay) print_way(config, i, actor);
        printf("{\"world\":\"%s\",\"log\":%d,\"mutation\":%d,\"publisher\":%d,\"states\":%" PRIu32
               ",\"violation\":\"%s\"}\n", config->name, DYN_LOG_LENGTH, DYN_MUTATE, model_mistake, numNodes, wrong);
        return wrong;
      }
      add_state(&s, i, actor);
    }
  }
  printf("{\"world\":\"%s\",\"log\":%d,\"mutation\":%d,\"publisher\":%d,\"ranks\":%d,\"epochs\":%d,\"publications\":%d,"
         "\"buffers\":%d,\"crashes\":%d,\"states\":%" PRIu32 ",\"longestSolo\":%d,\"violation\":null}\n",
         config->name, DYN_LOG_LENGTH, DYN_MUTATE, model_mistake, config->ranks, config->epochs, config->publications,
         config->buffers, config->crashes, numNodes, longest);
  if (!config->vetoes && !changed) return "no plan ever came into force: the world checks nothing";
  return NULL;
}

static const struct model_config worlds[] = {
    {"agreement", 3, 2, 2, 2, 1, 0}, {"veto", 3, 2, 1, 1, 1, 1},   {"drift", 2, 4, 3, 3, 1, 0},
    {"reuse", 2, 3, 3, 2, 0, 0},     {"reuse-long", 2, 4, 4, 2, 1, 0},
    {"drift3", 3, 3, 2, 2, 0, 0},
};

int main(int argc, char **argv) {
  bool expectViolation = DYN_MUTATE != 0, found = false;
  if (argc > 2) {
    model_mistake = (enum model_publisher_mistake)atoi(argv[2]);
    expectViolation |= model_mistake != PUBLISHER_RIGHT;
  }
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
    if (argc > 1 && strcmp(argv[1], "all") != 0 && strcmp(argv[1], worlds[i].name) != 0) continue;
    const char *wrong = explore(&worlds[i], !expectViolation);
    if (wrong && !expectViolation) {
      fprintf(stderr, "epoch_check: %s: %s\n", worlds[i].name, wrong);
      return 1;
    }
    found |= wrong != NULL;
    if (wrong && expectViolation) break;
  }
  if (expectViolation && !found) {
    fprintf(stderr, "epoch_check: mutation %d, publisher mistake %d: not found\n", DYN_MUTATE, model_mistake);
    return 1;
  }
  return 0;
}

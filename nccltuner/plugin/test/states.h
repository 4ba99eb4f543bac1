/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a small world that have been reached, breadth first. Each distinct one is kept whole (no hash stands for a state), so
 * "explored" means explored; its parents are the shortest way to it. STATE is a flat struct without padding.
 */
#ifndef DYN_STATES_H
#define DYN_STATES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATES (48u << 20)

static struct node {
  STATE state;
  uint32_t parent;
  uint8_t actor;
} *nodes;
static uint32_t numNodes, capNodes;
static uint32_t *table; /* index + 1 of a node, open addressing */
static uint64_t tableSize;

static uint64_t hash_state(const STATE *s) {
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

static void add_state(const STATE *s, uint32_t parent, int actor) {
  if (2 * (uint64_t)numNodes >= tableSize) grow_table();
  uint64_t at = hash_state(s) & (tableSize - 1);
  for (; table[at]; at = (at + 1) & (tableSize - 1))
    if (memcmp(&nodes[table[at] - 1].state, s, sizeof *s) == 0) return;
  if (numNodes == capNodes) {
    capNodes = capNodes ? capNodes * 2 : 1 << 12;
    nodes = realloc(nodes, capNodes * sizeof *nodes);
    if (!nodes || numNodes >= MAX_STATES) {
      fprintf(stderr, "the state space is larger than %u states\n", MAX_STATES);
      exit(2);
    }
  }
  nodes[numNodes] = (struct node){.state = *s, .parent = parent, .actor = (uint8_t)actor};
  table[at] = ++numNodes;
}

static void forget_states(void) {
  numNodes = 0;
  tableSize = 0;
}

#endif

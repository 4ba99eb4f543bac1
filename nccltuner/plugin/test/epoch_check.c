/* SPDX-License-Identifier: Apache-2.0
 *
 * Every interleaving of a small world, breadth first, with the shipped steps of epoch.h; a violation prints the shortest way to it.
 *
 * With DYN_MUTATE set the program expects to find a violation and fails when it finds none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../epoch.h"
#include "model.h"

#define STATE struct model_state
#include "states.h"

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
  forget_states();
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

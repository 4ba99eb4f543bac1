/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card in software, on threads of a CPU (nic_machine.h), posted to as NCCL's device code posts (poster.h): traffic
 * (nic_traffic.h) and single cases (nic_stories.h), with queues of either layout.
 *   nic_test [OPERATIONS [MISTAKE]]     TEST_SEED sets the seed
 * MISTAKE is the number of one to plant (nic.cuh, nic_machine.h), and the program fails when it does not find it.
 */
#include <sys/wait.h>

#include "../../../nccltuner/preload/test/naps.h"
#include "nic_stories.h"
#include "nic_traffic.h"

/* In a process of its own, for a mistake may hang. */
template <typename Play>
static bool isFine(Play play) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    const bool hangs = planted == NIC_MUTATE_UNRELEASED || planted == NIC_MUTATE_BLIND || planted == NIC_MUTATE_UNANSWERED;
    alarm(planted == 0 ? 400 : hangs ? 4 : 40); /* who is slow, on a busy machine, has not hung */
    play();
    fflush(stdout);
    _exit(0);
  }
  int status;
  return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
  const char *text = getenv("TEST_SEED");
  const uint64_t operations = argc > 1 ? strtoull(argv[1], nullptr, 10) : 20000, seed = text ? strtoull(text, nullptr, 10) : 1;
  constexpr struct { int ranks, contexts; } shapes[] = {{1, 3}, {2, 2}, {3, 2}, {4, 1}};
  planted = argc > 2 ? atoi(argv[2]) : 0;
  bool fine = true;
  naps_may_take(200);
  for (int of : {GDAKI_100, GDAKI_200}) {
    if (of == GDAKI_100 && planted >= NIC_MUTATE_BACKWARDS) continue; /* which it does not have */
    layout = of;
    const bool byTraffic = planted != 0 && planted != NIC_MUTATE_KEYS && planted != NIC_MUTATE_BLIND && planted < NIC_MUTATE_UNLOOKED;
    fine = fine && (byTraffic || isFine(playStories));
    for (auto s : shapes) fine = fine && isFine([&] { playTraffic(s.ranks, s.contexts, operations / 2, seed + s.ranks); });
  }
  if (fine == (planted == 0)) return 0;
  fprintf(stderr, fine ? "the planted mistake was not found (seed %lu)\n" : "wrong, or a hang: TEST_SEED=%lu\n", seed);
  return 1;
}

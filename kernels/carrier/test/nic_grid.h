/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of the network card's kernel on threads of a CPU (nic_machine.h), and who launches it.
 */
#ifndef CARRIER_TEST_NIC_GRID_H
#define CARRIER_TEST_NIC_GRID_H

#include <pthread.h>
#include <semaphore.h>

#include "nic_machine.h"

namespace dyn {

/* So small that glibc keeps them: one whose place became memory of the GPU, which the driver's stand-in maps unseen, would be a race to the thread
 * sanitizer. */
constexpr size_t kNicStack = 256 << 10;
constexpr unsigned kNicQueueThreads = 4, kNicHelperThreads = 3, kNicMostHelpers = 8;

struct NicThread {
  pthread_t id;
  sem_t begins, ended;
  void (*kernel)(nic); /* null: this thread ends */
  const nic *n;
  NicShared *shared;
  unsigned block, thread, threads;
};

/* The threads of one who launches grids, which stay for the next: making so many takes longer than most launches, and under the thread sanitizer
 * longer than what is tested. Each has semaphores of its own, so no thread of a grid is ordered with others but as if all were new. */
struct NicCrew {
  NicThread threads[NIC_MAX_RANKS * kNicQueueThreads + kNicMostHelpers * kNicHelperThreads];
  unsigned count;
};

inline void nicAwait(sem_t *is) {
  while (sem_wait(is) != 0) {}
}

inline void *nicRunThread(void *argument) {
  NicThread &t = *(NicThread *)argument;
  while (nicAwait(&t.begins), t.kernel != nullptr) {
    threadIdx.x = t.thread, blockIdx.x = t.block, blockDim.x = t.threads;
    nicShared = t.shared;
    t.kernel(*t.n);
    sem_post(&t.ended);
  }
  return nullptr;
}

/* One more. False: the machine has no more threads. */
inline bool nicHire(NicCrew &crew) {
  NicThread &t = crew.threads[crew.count];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kNicStack);
  sem_init(&t.begins, 0, 0), sem_init(&t.ended, 0, 0);
  const bool is = pthread_create(&t.id, &small, nicRunThread, &t) == 0;
  pthread_attr_destroy(&small);
  crew.count += is;
  return is;
}

inline void nicDismiss(NicCrew &crew) {
  for (; crew.count > 0; crew.count--) {
    NicThread &t = crew.threads[crew.count - 1];
    t.kernel = nullptr;
    sem_post(&t.begins);
    pthread_join(t.id, nullptr);
    sem_destroy(&t.begins), sem_destroy(&t.ended);
  }
}

/* As a launch, and until it is over. False: the machine has no more threads. */
inline bool nicRunGrid(NicCrew &crew, void (*kernel)(nic), const nic &n, unsigned helpers) {
  NicShared shared[NIC_MAX_RANKS + kNicMostHelpers] = {};
  unsigned count = 0, ranks = (unsigned)n.nRanks;
  for (unsigned b = 0; b < ranks + helpers; b++) {
    const unsigned size = b < ranks ? kNicQueueThreads : kNicHelperThreads;
    pthread_barrier_init(&shared[b].all, nullptr, size);
    pthread_barrier_init(&shared[b].copying, nullptr, size - kNicLanes);
    for (unsigned t = 0; t < size; t++) {
      if (count == crew.count && !nicHire(crew)) return false;
      NicThread &own = crew.threads[count++];
      own.kernel = kernel, own.n = &n, own.shared = &shared[b], own.block = b, own.thread = t, own.threads = size;
      sem_post(&own.begins);
    }
  }
  while (count > 0) nicAwait(&crew.threads[--count].ended);
  for (unsigned b = 0; b < ranks + helpers; b++) pthread_barrier_destroy(&shared[b].all), pthread_barrier_destroy(&shared[b].copying);
  return true;
}

}  // namespace dyn

#endif

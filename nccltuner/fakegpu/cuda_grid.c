/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_grid.h"

#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "cuda_kernels.h"

/* The thread sanitizer has to know on which stack its thread goes on. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#else
static void *__tsan_get_current_fiber(void) { return NULL; }
static void *__tsan_create_fiber(unsigned flags) { return (void)flags, NULL; }
static void __tsan_switch_to_fiber(void *fiber, unsigned flags) { (void)fiber, (void)flags; }
#endif

#define STACK_BYTES (256 << 10)

struct turn {
  ucontext_t begins;
  jmp_buf at;
  int begun;
  void *sanitized;
  int ended;
};

struct grid {
  const struct kernel_launch *launch;
  struct turn giver, threads[GRID_MOST_BLOCKS][GRID_THREADS];
  struct block {
    int threads, come, round; /* that have not ended; of these, to the barrier; barriers that all have passed */
    _Alignas(16) float shared[KERNEL_SHARED + GRID_THREADS];
  } blocks[GRID_MOST_BLOCKS];
  unsigned block, thread, left; /* who runs; that have not ended */
  int moved;                    /* since all had their turn somebody has passed a barrier, ended, or told others something */
  char stacks[GRID_MOST_BLOCKS][GRID_THREADS][STACK_BYTES];
};

static _Thread_local struct grid *running;

/* swapcontext would ask the kernel for the mask of signals each time. */
static void go(struct turn *from, struct turn *to) {
  if (_setjmp(from->at) != 0) return;
  __tsan_switch_to_fiber(to->sanitized, 0);
  if (to->begun) _longjmp(to->at, 1);
  to->begun = 1;
  setcontext(&to->begins);
}

static struct turn *own_turn(struct grid *grid) { return &grid->threads[grid->block][grid->thread]; }

static void give_way(struct grid *grid) { go(own_turn(grid), &grid->giver); }

static void pass_barrier(struct grid *grid, struct block *block) {
  if (block->come == 0 || block->come < block->threads) return;
  block->come = 0, block->round++;
  grid->moved = 1;
}

static void begin(void) {
  struct grid *grid = running;
  struct block *block = &grid->blocks[grid->block];
  kernel_thread(grid->launch, grid->block, grid->thread, block->shared);
  own_turn(grid)->ended = 1;
  block->threads--; /* nobody waits at a barrier for it any more, as on a GPU */
  pass_barrier(grid, block);
  grid->left--;
  grid->moved = 1;
  give_way(grid);
}

void grid_wait(void) { give_way(running); }

void grid_wait_block(void) {
  struct grid *grid = running;
  struct block *block = &grid->blocks[grid->block];
  int round = block->round;
  block->come++;
  pass_barrier(grid, block);
  while (block->round == round) give_way(grid);
}

void grid_moves(void) { running->moved = 1; }

/* All of them wait for other ranks. A nap is a small part of what has been waited, and who waits for seconds takes no CPU from whom it waits for. */
static void let_others_run(unsigned vain) {
  if (vain % 8 != 0 && vain < 64) sched_yield();
  else usleep(vain < 64 ? 20 : vain < 128 ? 100 : 500);
}

static void prepare(struct turn *turn, char *stack) {
  getcontext(&turn->begins);
  turn->begins.uc_stack.ss_sp = stack;
  turn->begins.uc_stack.ss_size = STACK_BYTES;
  turn->begun = turn->ended = 0;
  makecontext(&turn->begins, begin, 0);
}

void grid_run(struct grid *grid, const struct kernel_launch *launch) {
  unsigned vain = 0;
  running = grid;
  grid->launch = launch;
  grid->left = launch->blocks * launch->threads;
  grid->giver.begun = 1;
  grid->giver.sanitized = __tsan_get_current_fiber();
  for (unsigned b = 0; b < launch->blocks; b++) {
    grid->blocks[b].threads = (int)launch->threads;
    for (unsigned t = 0; t < launch->threads; t++) prepare(&grid->threads[b][t], grid->stacks[b][t]);
  }
  while (grid->left > 0) {
    grid->moved = 0;
    for (grid->block = 0; grid->block < launch->blocks; grid->block++)
      for (grid->thread = 0; grid->thread < launch->threads; grid->thread++)
        if (!own_turn(grid)->ended) go(&grid->giver, own_turn(grid));
    if (grid->moved) vain = 0;
    else let_others_run(++vain);
  }
}

struct grid *grid_new(void) {
  /* Zero as it comes: the thread sanitizer's calloc would write to all of the stacks. */
  struct grid *grid = mmap(NULL, sizeof *grid, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (grid == MAP_FAILED) abort(); /* a test's machine is out of memory */
  for (int b = 0; b < GRID_MOST_BLOCKS; b++)
    for (int t = 0; t < GRID_THREADS; t++) grid->threads[b][t].sanitized = __tsan_create_fiber(0);
  return grid;
}

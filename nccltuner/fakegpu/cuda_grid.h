/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a launch, taking turns on one thread of this CPU: each goes on until it waits. Machines have more ranks than
 * CPUs here, and a thread that waits keeps none of them from running. Races of a rank's own threads are for ../../kernels/test.
 */
#ifndef FAKEGPU_CUDA_GRID_H
#define FAKEGPU_CUDA_GRID_H

#ifdef __cplusplus
extern "C" {
#endif

/* Of a launch no more run. The kernels give the same with any grid that is the same on all ranks. */
enum { GRID_BLOCKS = 2, GRID_THREADS = 2 };
enum { GRID_MOST_BLOCKS = 3 }; /* of roles that go together (gin/pipes.h) */

struct grid;
struct kernel_launch;

struct grid *grid_new(void);
void grid_run(struct grid *grid, const struct kernel_launch *launch);

/* By a thread of the launch that runs: it waits for who is outside, or for the others of its block. */
void grid_wait(void);
void grid_wait_block(void);

/* By a thread that does what others may wait for. */
void grid_moves(void);

#ifdef __cplusplus
}
#endif

#endif

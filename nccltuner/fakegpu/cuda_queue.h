/* SPDX-License-Identifier: Apache-2.0
 *
 * What streams still have to do: kernels and collectives that move data between ranks, and what is ordered behind them. Nothing runs until
 * somebody waits or asks; then all streams of the process run at once, each on a thread of its own or that of who waits for it, for ranks of one
 * process may wait for each other.
 */
#ifndef FAKEGPU_CUDA_QUEUE_H
#define FAKEGPU_CUDA_QUEUE_H

#include <pthread.h>
#include <stdint.h>

#include "../../kernels/carrier/nic/nic.h"
#include "../worker/cuda_api.h"
#include "cuda_kernels.h"

struct job {
  struct job *next;
  enum { JOB_KERNEL, JOB_FILL, JOB_AFTER, JOB_COPY, JOB_ADD, JOB_NIC, JOB_WATCH, JOB_HOLD, JOB_LET_GO, JOB_CALL } kind;
  union {
    struct kernel_launch launch;
    struct { void *at; int value; size_t bytes; } fill;
    struct { void *to, *from, *owned; size_t bytes; } copy; /* owned: freed then, and what is copied if it is not NULL */
    struct { uint64_t *at, value; } add;
    struct nic nic; /* of both of the card's kernels */
    const uint32_t *hold; /* until the word is not 0 */
    CUuserObject object;
    struct { void (*run)(void *argument); void *argument; } call; /* of NCCL's */
    struct { CUstream stream; uint64_t jobs; } after; /* that many of another stream's jobs must be done */
  };
};

struct queue {
  struct job *first, *last;
  uint64_t added, wanted, done; /* jobs: so far; that may run; that ran */
  CUstream other;               /* of all streams that ever had a job */
  int known, hasThread;         /* in that list */
  int runs;                     /* its first job, in whatever thread */
  pthread_cond_t begins;        /* of the thread, which others' jobs do not wake */
};

/* Streams are not NULL here. */
uint64_t queue_add(CUstream stream, const struct job *job); /* as queue_added behind it */
uint64_t queue_added(CUstream stream);
int queue_is_idle(CUstream stream);              /* nothing is left to do; starts nothing */
void queue_wait(CUstream stream, uint64_t jobs); /* until so many are done */
void queue_wait_context(CUcontext context);      /* until all of its streams' jobs are done that were added before */
int queue_is_done(CUstream stream, uint64_t jobs); /* if not, they are under way from now on */

/* cuda_module.c: a kernel has run. */
void module_ended(const struct kernel_launch *launch);

/* cuda_copy.c: what these jobs do, and whether a function of a PTX module is the one that adds. */
void copy_run(const struct job *job);
void add_run(const struct job *job);
int add_is(const void *function);
CUresult add_launch(CUstream stream, void **arguments);

#endif

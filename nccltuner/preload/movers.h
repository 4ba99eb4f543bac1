/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DYN_MOVERS_H
#define DYN_MOVERS_H

#include <stddef.h>
#include <stdint.h>

/* send and recv, as words: names that a program's own functions may have (sends.c). */
typedef intptr_t dyn_word;
typedef dyn_word (*dyn_function)(dyn_word, dyn_word, dyn_word, dyn_word, dyn_word, dyn_word);

#define DYN_MOVE_BYTES 65536 /* shorter ones are sooner done than handed over */

/* One of NCCL's calls that do not wait, of DYN_MOVE_BYTES and more: what send or recv returns now. EAGAIN until one of our threads has moved
 * bytes; NCCL asks again with the same words. Of a descriptor one thread may ask;
 * when it ends nothing is read from or written into its buffers any more. */
dyn_word dyn_move(dyn_function real, int fd, void *data, size_t bytes, int flags);

/* Nothing of a descriptor's next message has been there until now. errno stays. */
void dyn_move_nothing(int fd);

#endif

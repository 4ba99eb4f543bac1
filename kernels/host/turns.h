/* SPDX-License-Identifier: Apache-2.0
 *
 * Work of our own on the GPU that leaves the program's streams where they would be without it.
 */
#ifndef DYN_HOST_TURNS_H
#define DYN_HOST_TURNS_H

#include <stdbool.h>

/* On streams of its own, for the program's may be waiting for peers; it is over when this returns. It is put twice, on one stream after the
 * other, and what is done twice must be as if it was once. False: CUDA refuses something. */
bool dyn_do_on_streams(bool (*put)(void *of, void *stream), void *of);

#endif

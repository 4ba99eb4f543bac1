/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CARRIER_TEST_PROXY_RIG_H
#define CARRIER_TEST_PROXY_RIG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int proxy_rank(void);
int proxy_ranks(void);
void proxy_meet(void);
void proxy_play(int ranks, int dies, void (*story)(void)); /* dies: -1, or who kills itself */
/* Of all ranks' parts, each of so many bytes, 128 at most. */
void proxy_gather(void *all, size_t bytes);
void *proxy_memory(size_t bytes, int handles); /* rig.h */
void *proxy_gin(void);                         /* ncclGin_v11_t */
void *proxy_connect(void);                     /* a collComm */
void proxy_disconnect(void *coll);
void proxy_end(void);
/* Who announces kernels over it finds the carrier's words, where the carrier's kernel is there. */
void proxy_known(const void *handle);

#ifdef __cplusplus
}
#endif

#endif

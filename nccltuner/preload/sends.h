/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DYN_PRELOAD_SENDS_H
#define DYN_PRELOAD_SENDS_H

/* Before NCCL makes communicators: from now on sizes of its messages over sockets go with these (sends.c). */
void dyn_sends_begin(void);

#endif

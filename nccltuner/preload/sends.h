/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DYN_PRELOAD_SENDS_H
#define DYN_PRELOAD_SENDS_H

/* Before NCCL makes communicators: from now on its small messages over sockets are sent whole or not at all (sends.c). */
void dyn_sends_begin(void);

#endif

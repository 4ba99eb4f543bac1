/* SPDX-License-Identifier: Apache-2.0
 *
 * Unix sockets between the ranks of one host: who may speak, packets with a descriptor, and waits that end.
 * DYNAMICCL_CARRIER_SETUP_S (60): how long a rank waits for another while a communicator is made or memory registered.
 */
#ifndef DYN_CARRIER_WIRE_H
#define DYN_CARRIER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What NCCL gathers of all ranks: at most 128 bytes. */
struct wire_handle {
  char magic[16];
  char boot[40]; /* the kernel's id of this boot: another host has another */
  char name[64]; /* of the listening socket, in the abstract namespace, which nobody can guess */
};

uint64_t wire_deadline(void); /* from now, CLOCK_MONOTONIC */
int wire_wait_s(void);

int wire_listen(struct wire_handle *handle); /* -1: it was said why */
/* -1: it was said why, with the peer's rank. */
int wire_connect(const struct wire_handle *handle, int peer, uint64_t deadline);
/* -1: nobody came in time. Strangers, of other users, are sent away. */
int wire_accept(int listener, uint64_t deadline);
pid_t wire_pid(int connection);

/* fd: -1, or a descriptor that goes along and stays ours. False: not in time, or the connection is closed. */
bool wire_send(int connection, const void *packet, size_t bytes, int fd, uint64_t deadline);
/* A packet of exactly so many bytes. fd: NULL, or gets the descriptor that came along, which is the caller's; -1: none came. */
bool wire_receive(int connection, void *packet, size_t bytes, int *fd, uint64_t deadline);
const char *wire_why(void); /* the last of these two was false, in this thread: in words */

bool wire_random(void *bytes, size_t count);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a communicator over several hosts meet: in the process that made its ncclUniqueId, whose address every rank has
 * from NCCL. An id is a handle of NCCL's bootstrap (struct ncclBootstrapHandle, src/include/bootstrap.h: a number, the address that it
 * listens at, from 2.31 or so on a count) and zeros up to 128 bytes; in the last 32 of them stands where this library listens there, and
 * a number that who connects must know. All ranks get the same bytes; one without this library looks at none of ours.
 */
#ifndef DYN_HOSTS_IDS_H
#define DYN_HOSTS_IDS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define DYN_ID_BYTES 128 /* NCCL_UNIQUE_ID_BYTES */

struct dyn_root {
  uint64_t nonce; /* 0: not known */
  union {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
  } at;
};

/* The address of NCCL's bootstrap in an id, with port 0. False: these are not the bytes that we know, or they are in use. */
bool dyn_id_address(const unsigned char id[DYN_ID_BYTES], struct dyn_root *root);
/* listens: where, which is at the id's address, and the number. */
void dyn_id_mark(unsigned char id[DYN_ID_BYTES], const struct dyn_root *listens);
/* False: it has no mark. */
bool dyn_id_read(const unsigned char id[DYN_ID_BYTES], struct dyn_root *root);

/* Its address as system calls take it. */
static inline socklen_t dyn_root_bytes(const struct dyn_root *root) { return root->at.any.sa_family == AF_INET ? sizeof root->at.in : sizeof root->at.in6; }
bool dyn_root_same_host(const struct dyn_root *a, const struct dyn_root *b);
/* A socket that listens at the address, which other hosts reach, at a port that the system gives, and a number that nobody knows yet: *made. -1: none. */
int dyn_root_listen(const struct dyn_root *at, struct dyn_root *made);

#endif

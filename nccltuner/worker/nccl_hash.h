/* SPDX-License-Identifier: Apache-2.0
 *
 * comm->commHash, which tuners and profilers get as the communicator's id, from the unique id: getHash
 * (src/include/bitops.h) as src/init.cc uses it, read in NCCL 2.27 to 2.30; its constants are in the library of 2.32.3
 * too. Whoever needs to be sure asks which record a process has joined.
 */
#ifndef WORKER_NCCL_HASH_H
#define WORKER_NCCL_HASH_H

#include <stdint.h>
#include <string.h>

#include "nccl_api.h"

static inline uint64_t nccl_comm_hash(const ncclUniqueId *id) {
  uint64_t a = 1 ^ sizeof *id, b = 1;
  for (size_t i = 0; i < sizeof *id; i += 8) {
    uint64_t x;
    a += b;
    b ^= a;
    a ^= a >> 31;
    a *= 0x9de62bbc8cef3ce3u;
    b ^= b >> 32;
    b *= 0x485cd6311b599e79u;
    memcpy(&x, id->internal + i, sizeof x);
    a += x;
  }
  a ^= a >> 31;
  a *= 0xbac3bd562846de6bu;
  a += b;
  a ^= a >> 32;
  return a * 0x995a187a14e7b445u;
}

#endif

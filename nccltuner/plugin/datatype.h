/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's numbers of functions and types, for the plugin and the preload library.
 */
#ifndef DYN_DATATYPE_H
#define DYN_DATATYPE_H

#include <stddef.h>

/* ncclFunc_t, src/include/nccl_common.h: those that a tuner is asked about. The last one is ours: NCCL has another function of
 * its number, and asks nobody about ncclAlltoAll. */
enum { DYN_BROADCAST, DYN_REDUCE, DYN_ALL_GATHER, DYN_REDUCE_SCATTER, DYN_ALL_REDUCE, DYN_ALL_TO_ALL, DYN_FIRST_REGISTERED };

/* The last four, on memory that the program has registered: collectives of their own to plans, counts and marks. */
#define DYN_REGISTERED 4
static inline int dyn_on_registered(int collective) { return collective + DYN_REGISTERED; } /* of AllGather, ReduceScatter, AllReduce, AllToAll */
static inline int dyn_nccls(int collective) { return collective < DYN_FIRST_REGISTERED ? collective : collective - DYN_REGISTERED; }

/* Bytes of an element, by ncclDataType_t, src/nccl.h.in v2.30.7; 0: a type that is not known here. */
static inline unsigned dyn_datatype_number_bytes(int datatype) {
  /* Two bits of each, the power of two of 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1: a table would be one more line of cache for each call. */
  return datatype >= 0 && datatype < 12 ? 1u << (0x79FA0 >> 2 * datatype & 3) : 0;
}

#endif

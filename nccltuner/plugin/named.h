/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's kernels that a call can be given by name (algSelection of ncclCollConfig_t), for the plugin and the preload library.
 * The words are those of libnccl.so.2 2.31.2 and 2.32.3, which mean the same by them and have them for the same collectives
 * (ncclAlgParse, ncclAlgValidForFuncMask): nccl.h has the field and not its words.
 */
#ifndef DYN_NAMED_H
#define DYN_NAMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi.h"
#include "datatype.h"

/* Bits of dyn_rank.marks on registered memory. */
static inline uint32_t dyn_symmetric_mark(unsigned symmetric) { return 1u << ((symmetric <= DYN_SYMMETRIC_LDMC ? 5 : 9) + symmetric); }
static inline uint32_t dyn_classic_mark(unsigned algorithm, unsigned protocol) { return 1u << (3 * algorithm + protocol); }

/* 0: the action is none that a name can bring about. */
static inline uint32_t dyn_named_mark(uint32_t action) {
  unsigned algorithm = action >> DYN_ACTION_ALGO_SHIFT & 15, protocol = action >> DYN_ACTION_PROTO_SHIFT & 15;
  if ((action & ~(0xffu << DYN_ACTION_ALGO_SHIFT | 15)) != 0) return 0; /* a name has no number of channels */
  if ((action & 15) == DYN_PATH_SYMMETRIC && protocol == 0 && algorithm > 0 && algorithm < DYN_NUM_SYMMETRIC) return dyn_symmetric_mark(algorithm);
  return (action & 15) == DYN_PATH_COLLECTIVE && algorithm < 7 && protocol < 3 ? dyn_classic_mark(algorithm, protocol) : 0;
}

/* What NCCL has a name for, by collective (of NCCL's). Whether it takes it is found out by asking. */
static inline uint32_t dyn_named_marks(int collective) {
  enum { TREE = 0, RING = 1, NVLS = 4, NVLS_TREE = 5, SIMPLE = 2 };
  uint32_t marks = 7u << 3 * RING | dyn_classic_mark(NVLS, SIMPLE);
  unsigned first = DYN_SYMMETRIC_AG_LL, last = DYN_SYMMETRIC_RS_TMA_LD_AG_TMA_ST;
  if (collective == DYN_ALL_REDUCE) marks |= 7u << 3 * TREE | dyn_classic_mark(NVLS_TREE, SIMPLE);
  else if (collective == DYN_ALL_GATHER) first = DYN_SYMMETRIC_LL, last = DYN_SYMMETRIC_TMA_STMC;
  else if (collective == DYN_REDUCE_SCATTER) marks |= dyn_symmetric_mark(DYN_SYMMETRIC_LL), first = DYN_SYMMETRIC_LD, last = DYN_SYMMETRIC_TMA_LD;
  else return 0;
  for (unsigned s = first; s <= last; s++) marks |= dyn_symmetric_mark(s);
  return marks;
}

/* NCCL's word; NULL: it has none. */
static inline const char *dyn_name_of(uint32_t action) {
  static const char *const symmetric[DYN_NUM_SYMMETRIC] = {
      NULL, "SYMK_LL", "SYMK_LLMC", "SYMK_ST", "SYMK_STMC", "SYMK_TmaST", "SYMK_TmaSTMC", "SYMK_LD", "SYMK_LDMC", "SYMK_TmaLD",
      "SYMK_AGxLL_R", "SYMK_AGxLLMC_R", "SYMK_RSxLD_AGxST", "SYMK_RSxLDMC_AGxSTMC", "SYMK_RSxTmaLD_AGxTmaST"};
  static const char *const classic[7][3] = {{"TREE_LL", "TREE_LL128", "TREE_SIMPLE"}, {"RING_LL", "RING_LL128", "RING_SIMPLE"},
                                            {NULL}, {NULL}, {NULL, NULL, "NVLS_SIMPLE"}, {NULL, NULL, "NVLSTREE_SIMPLE"}, {NULL}};
  unsigned algorithm = action >> DYN_ACTION_ALGO_SHIFT & 15, protocol = action >> DYN_ACTION_PROTO_SHIFT & 15;
  if (dyn_named_mark(action) == 0) return NULL;
  return (action & 15) == DYN_PATH_SYMMETRIC ? symmetric[algorithm] : classic[algorithm][protocol];
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * dyn_rank.marks of what NCCL's own collectives may run: a bit for each algorithm and protocol, and that NCCL was asked at all.
 */
#ifndef DYN_MARKS_H
#define DYN_MARKS_H

#include "../abi.h"

#define DYN_MARKS_SEEN (1u << 31)
#define DYN_MARKS_PROTOCOLS 3 /* marks has room for the protocols LL, LL128, Simple ... */
#define DYN_MARKS_ALGORITHMS 7 /* ... of so many algorithms: 3 * 6 + 2 < 22 */
#define DYN_MARKS_PAT (7u << DYN_MARKS_PROTOCOLS * 6) /* NCCL_ALGO_PAT */

/* Kernels over GIN. */
#define DYN_MARKS_GIN_SHIFT 23 /* and backend */
#define DYN_MARKS_CONTEXTS (1u << 22)
#define DYN_MARKS_GIN (DYN_MARKS_CONTEXTS | 1u << (DYN_MARKS_GIN_SHIFT + DYN_BACKEND_GDAKI) | 1u << (DYN_MARKS_GIN_SHIFT + DYN_BACKEND_PROXY))

#endif

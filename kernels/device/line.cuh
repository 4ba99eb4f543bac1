/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines: 120 bytes of data and the call's number, written by eight threads of a warp in one store of 128 bytes into a peer's
 * memory. Such a store arrives whole over NVLink, and a load of all of a line sees it whole or not at all, so a reader that
 * sees the number has all of the data: no fence, no barrier, and the data is there as soon as its number is. NCCL's LL128
 * protocol rests on the same (src/device/prims_ll128.h), and is on by default on these links.
 *
 * The number is all that ever lies in a line's last 8 bytes, whatever kernel wrote it: data of an earlier call cannot be
 * taken for the number of a later one.
 */
#ifndef DYN_LINE_CUH
#define DYN_LINE_CUH

#include <cstddef>
#include <cstdint>

#include "call.h"

#ifdef __CUDACC__
#include "machine.cuh"
#else
#include "../test/machine.h"
#endif

/* Only the test on a CPU has another number here: each plants one mistake that it has to find. */
#ifndef DYN_KERNEL_MUTATE
#define DYN_KERNEL_MUTATE 0
#endif
#define DYN_KERNEL_MUTATE_ONE_HALF 1    /* all calls share one half of the scratch memory */
#define DYN_KERNEL_MUTATE_OWN_COUNTER 2 /* a block counts up its own counter alone */
#define DYN_KERNEL_MUTATE_NO_NUMBER 3   /* a line is taken as it is */
#define DYN_KERNEL_MUTATE_ORDER 4       /* a rank adds up its own part first */
#define DYN_KERNEL_MUTATE_UNHEARD 5     /* a broadcast's root waits for nobody */
#define DYN_KERNEL_MUTATE_HASTE 6       /* a block goes on when its first threads are through a barrier */
#define DYN_KERNEL_MUTATE_BULK_HALF 7   /* all rounds in bulk share one half of their memory */
#define DYN_KERNEL_MUTATE_OWN_SQUARES 8 /* a thread normalises by the squares that it added up itself */
#define DYN_KERNEL_MUTATE_CLOSE_ROWS 9  /* rows begin in the last line of the one before */
#define DYN_KERNEL_MUTATE_EVEN_ROUNDS 10 /* a call's rounds in bulk may be of an even number */
#define DYN_KERNEL_MUTATE_UNREADY 11 /* over GIN, AllToAll puts to who may not have begun */
#define DYN_KERNEL_MUTATE_IDLE 12 /* a block that has nothing to move in a round waits for nobody */
#define DYN_KERNEL_MUTATE_NO_ROOM 13 /* a cell is filled, taken or not */
#define DYN_KERNEL_MUTATE_EARLY_HEAD 14 /* a cell is said to be taken before it is */
#define DYN_KERNEL_MUTATE_UNDRAINED 15 /* a kernel ends while its cells are full */
#define DYN_KERNEL_MUTATE_IN_PLACE 16 /* in place, what is yet to be sent is written over */
#define DYN_KERNEL_MUTATE_OFF_RAIL 17 /* puts go to a rank of another rail */
#define DYN_KERNEL_MUTATE_OWN_ROUNDS 18 /* where parts differ, a rank goes by its own alone */
#define DYN_KERNEL_MUTATE_MIXED_PLACES 19 /* a block tells of its size where another one sends */
#define DYN_KERNEL_MUTATE_TAKES_ALL 20 /* where parts differ, what a peer wrote into the result is taken out of scratch memory as well */
#define DYN_KERNEL_MUTATE_HASTY_ANSWER 21 /* over GIN, a rank answers a timed put before it has come */
#define DYN_KERNEL_MUTATE_OWN_WINDOW 22 /* a rank writes into its peers' windows when its own buffer lies in one */
#define DYN_KERNEL_MUTATE_ANY_WINDOW 23 /* windows are taken for the same without a look */
#define DYN_KERNEL_MUTATE_OWN_OFFSET 24 /* a peer's buffer is looked for where this rank's lies in its window */
#define DYN_KERNEL_MUTATE_UNCLOSED 25   /* a rank ends while peers may still write into its window, or read it */
#define DYN_KERNEL_MUTATE_LATE 26       /* who had sent before it met the others does not wait for those that had not */
#define DYN_KERNEL_MUTATE_ONE_PLACE 27  /* all calls meet at one place */
#define DYN_KERNEL_MUTATE_INTO_SENDS 28 /* AllToAll in place writes over what peers have not sent yet */
#define DYN_KERNEL_MUTATE_TOO_FAR 29    /* nobody asks how much of a peer's window a rank can address */
#define DYN_KERNEL_MUTATE_UNSHIFTED 30  /* words of a copy are taken where the source's begin */
#define DYN_KERNEL_MUTATE_OWN_REST 31   /* a rank's own part ends with the rounds */
#define DYN_KERNEL_MUTATE_MOVING_SHARES 32 /* where parts differ, a block has another place in the slot in a shorter round */
#define DYN_KERNEL_MUTATE_COUNTED_ALIKE 33 /* where peers have sent other numbers of cells, one's are counted for all */
#define DYN_KERNEL_MUTATE_ONE_SIGNAL 34 /* over GIN, blocks that share a context have one signal for each peer */
#define DYN_KERNEL_MUTATE_ONE_COUNT 35  /* over GIN, what was seen of a signal counts for all contexts */
#define DYN_KERNEL_MUTATE_BOTH_SWAP 36  /* AllToAll in place: both of two ranks swap the same half of what they exchange */
#define DYN_KERNEL_MUTATE_NARROW 37     /* what has been added up so far is rounded to the type, rank by rank */
#define DYN_KERNEL_MUTATE_BY_TURN 38    /* calls that are timed leave their times when it is their number's turn, as those in graphs */
#define DYN_KERNEL_MUTATE_SILENT 39    /* where parts differ, ranks that send each other nothing do not hear of each other */
#define DYN_KERNEL_MUTATE_UNTOLD 40    /* where parts differ, a rank with small ones does not ask whether others go in bulk */
#define DYN_KERNEL_MUTATE_RARELY 41     /* over GIN, a rank times one call in many where its peers time one in few */
#define DYN_KERNEL_MUTATE_JOINT_EARLY 42 /* the head that a call's last cells share comes when the first of them is taken */
#define DYN_KERNEL_MUTATE_ROUNDS_ONCE 43 /* AllReduce over GIN in rounds counts those of sums alone */
#define DYN_KERNEL_MUTATE_SENDS_ON 44   /* who has given up takes part in calls to come */
#define DYN_KERNEL_MUTATE_SUMS_ON 45    /* or sends on sums of what did not come */
#define DYN_KERNEL_MUTATE_PASSES_ON 46  /* or says that it is through barriers */
#define DYN_KERNEL_MUTATE_OTHER_LANE 47 /* or takes part in calls of another lane of the communicator */
#define DYN_KERNEL_MUTATE_SOME_LEAVE 48 /* over GIN, of a block that begins meanwhile those threads alone that see it do not */

namespace dyn {

constexpr int kLineBytes = DYN_LINE_BYTES, kLineData = DYN_LINE_DATA, kPackBytes = 8, kLinePacks = kLineData / kPackBytes;

/* What one thread has of a line: words of 8 bytes, each a pack of elements; the last thread's last is the number. */
struct Piece {
  uint2 words[kLineWords];
};

__device__ __forceinline__ int laneOfLine() { return (int)(threadIdx.x % kLineLanes); }

/* Word w of this thread's piece is a pack, and of line i number packAt. */
__device__ __forceinline__ bool isData(int w) { return laneOfLine() * kLineWords + w < kLinePacks; }
__device__ __forceinline__ size_t packAt(size_t i, int w) { return i * kLinePacks + laneOfLine() * kLineWords + w; }

/* Elements that go together: 8 bytes, or 16 in bulk. */
template <typename T, typename Bits = uint2>
union Pack {
  static constexpr int kElements = (int)(sizeof(Bits) / sizeof(T));
  Bits bits;
  T elements[kElements];
  uint32_t pairs[sizeof(Bits) / sizeof(uint32_t)]; /* of elements of 16 bits */
  __device__ Pack() : bits() {}
};

template <typename T, typename Bits>
__device__ __forceinline__ Pack<T, Bits> packOf(Bits bits) {
  Pack<T, Bits> p;
  p.bits = bits;
  return p;
}

}  // namespace dyn

#endif

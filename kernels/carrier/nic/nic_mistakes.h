/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes that can be planted in the kernel of the network card in software; CPU threads (test/nic_test.cc) have to find each.
 */
#ifndef DYN_NIC_MISTAKES_H
#define DYN_NIC_MISTAKES_H

/* Only the test on a CPU has another number here. */
#ifndef NIC_MUTATE
#define NIC_MUTATE 0
#endif
#define NIC_MUTATE_EARLY 1   /* the last bytes of a put come later (test/nic_machine.h) */
#define NIC_MUTATE_NO_WAIT 2 /* a counter that does not wait for its put */
#define NIC_MUTATE_OWNER 3   /* completions look the same in each lap */
#define NIC_MUTATE_KEYS 4    /* keys stand for any number of bytes */
#define NIC_MUTATE_FORGETS 5 /* a kernel that ends forgets how far it came */
#define NIC_MUTATE_HALF 6    /* a copy is done when its first helper is */
#define NIC_MUTATE_UNRELEASED 7 /* an addition that orders nothing (test/nic_machine.h): the thread sanitizer has to find it */
#define NIC_MUTATE_TORN 8    /* a helper takes a job as soon as one word of it is there */
#define NIC_MUTATE_BLIND 9   /* a helper does not look at what is ready itself: the thread sanitizer has to find it */
#define NIC_MUTATE_AHEAD 10  /* requests are taken when their places are reserved (test/nic_world.h) */
#define NIC_MUTATE_SHORT 11  /* what is left over when a copy is parted belongs to nobody */
#define NIC_MUTATE_PAIR 12     /* an addition behind a copy does not wait for it */
#define NIC_MUTATE_UNREADY 13  /* the request behind a copy is read though it is not ready */
#define NIC_MUTATE_UNLOOKED 14 /* an addition behind a copy counts as done though it cannot be made */
#define NIC_MUTATE_UNANSWERED 15 /* a request that blocks copy unasked is done before they have answered */
#define NIC_MUTATE_UNFENCED 16   /* they begin though something was written since the last fence: the thread sanitizer has to find it */
#define NIC_MUTATE_LEAVES 17     /* a kernel ends though none stands behind it */
#define NIC_MUTATE_STAYS 18      /* one that finds nothing when it comes stays as long as one that did something */
#define NIC_MUTATE_SLEEPS 19     /* a watch sees no counters' queues */
#define NIC_MUTATE_BACKWARDS 20  /* a get puts */
#define NIC_MUTATE_PASSED 21     /* blocks that begin unasked pass over gets, and the queue's warp counts on them */
#define NIC_MUTATE_LOCAL 22      /* keys of gets are taken for those of the other rank */
#define NIC_MUTATE_READY 23      /* what is ready and not rung for is taken, whatever the layout (test/nic_world.h) */
#define NIC_MUTATE_UNEXPECTED 24 /* a kernel ends when nothing was asked of it for long, whatever is to come */

#endif

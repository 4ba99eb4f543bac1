/* SPDX-License-Identifier: Apache-2.0
 *
 * Which planted mistakes are made, DYN_FENCE_MUTATE and so on: the tests say so when they run, and one program tries all. 0: none.
 */
#ifndef DYN_MISTAKES_H
#define DYN_MISTAKES_H

extern int fence_mistake, hub_mistake, rank_mistake;
#define DYN_FENCE_MUTATE fence_mistake
#define DYN_HUB_MUTATE hub_mistake
#define DYN_RANK_MUTATE rank_mistake

#endif

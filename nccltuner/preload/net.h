/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of the program's communicators where GIN has another one. NCCL takes GIN from the plugin that a communicator's
 * network comes from. The carrier (kernels/carrier) brings GIN and no network that one would use, so with
 * DYNAMICCL_GIN_NET=dynamiccl-carrier GIN's own communicator names it, and the program's get NCCL's Socket unless they name one.
 */
#ifndef DYN_NET_H
#define DYN_NET_H

#include "../../kernels/host/nccl_gin.h"

bool dyn_net_apart(void);
/* A communicator is about to be made with this config; NULL: none. What it names goes into dyn_preload.networks, and what else it says to what is being made. */
void dyn_net_note(const void *config);
/* config, or where it names no network copy, filled with it and with Socket; the same if config is NULL. What that names is noted. */
void *dyn_net_config(void *config, struct dyn_nccl_config *copy);
/* A call that takes no config is about to make communicators: says, once, what becomes of them. */
void dyn_net_none(const char *call);

#endif

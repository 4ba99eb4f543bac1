/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tables of all versions share (plugin.c): a handle means the same in each of them.
 */
#ifndef DYN_CARRIER_PLUGIN_H
#define DYN_CARRIER_PLUGIN_H

#include "carrier.h"
#include "nccl_rma_abi.h"

#define NAME "dynamiccl-carrier"
#define EXPORT __attribute__((visibility("default")))

const char *plugin_proxy(void); /* who moves the data with type Proxy */
/* Who moves the data, which is said once for each `said`. Not ncclSuccess: nobody said that it is meant. */
int plugin_announce(atomic_flag *said, const char *by);
int one_device(int *ndev);
int rma_properties(int dev, ncclNetProperties_v12_t *props); /* version 14 */

/* ctx: struct carrier_instance. collComm: struct carrier. mhandle: struct carrier_region. */
int gin_init(void **ctx, uint64_t commId, ncclDebugLogger_t logger);
int gin_listen(void *ctx, int dev, void *handle, void **listenComm);
int gin_connect_proxy(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
int gin_connect_port(void *ctx, void *handles[], int nranks, int rank, void *listenComm, int layout, void **collComm); /* with type GDAKI */
int gin_register(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **ginHandle);
int gin_deregister(void *collComm, void *mhandle);
int gin_close(void *collComm);
int gin_close_listen(void *listenComm);
int gin_signal_of(const struct carrier_region *signals, uint64_t offset, uint64_t value, uint32_t op, struct ring_message *message);
int gin_test(void *collComm, void *request, int *done);
int gin_finalize(void *ctx);

#endif

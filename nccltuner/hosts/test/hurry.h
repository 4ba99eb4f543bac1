/* SPDX-License-Identifier: Apache-2.0
 *
 * What hosts.c and hub.c wait for, shorter than a program's ranks do.
 */
#define DYN_HOSTS_SEEK_NS UINT64_C(2000000000)
#define DYN_HOSTS_GONE_NS UINT64_C(500000000)
#define LOOK_MS 50
#define CONNECT_MS 1000
#define AGAIN_MS 100
#define TICK_MS 5
#define STRANGERS_MS 300

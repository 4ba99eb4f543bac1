/* SPDX-License-Identifier: Apache-2.0
 *
 * Which buffers of a call our kernels can reach on all ranks: those in windows (windows.h) of which peers' addresses are known (peers.h).
 */
#include <string.h>

#include "../../kernels/device/call.h"
#include "../plugin/datatype.h"
#include "device.h"
#include "windows.h"

bool dyn_windowed_of(const struct dyn_windows *windows, const void *at, uint64_t bytes, struct dyn_windowed *in) {
  struct dyn_window_place place;
  if (!dyn_window_of(windows, at, bytes, &place) || place.peers == NULL || bytes > place.peers->reach) return false;
  in->word = dyn_window_word(place.number, place.peers->before + place.offset);
  in->most = place.peers->reach - bytes;
  memcpy(in->base, place.peers->base, sizeof in->base);
  return in->word != 0;
}

bool dyn_windowed_find(const struct dyn_windows *windows, struct dyn_work *work, uint32_t nRanks, struct dyn_buffers *in) {
  uint64_t bytes = work->count * (uint64_t)dyn_datatype_number_bytes(work->datatype), all = bytes * nRanks;
  bool scatters = work->collective == DYN_REDUCE_SCATTER, exchanges = work->collective == DYN_ALL_TO_ALL, gathers = work->collective == DYN_ALL_GATHER;
  if (!dyn_windows_any(windows)) return false;
  if (dyn_windowed_of(windows, work->send, scatters || exchanges ? all : bytes, &in->send)) work->sendWindow = &in->send;
  if (dyn_windowed_of(windows, work->recv, gathers || exchanges ? all : bytes, &in->recv)) work->recvWindow = &in->recv;
  return (scatters ? work->sendWindow : work->recvWindow) != NULL;
}

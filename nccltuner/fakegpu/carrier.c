/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays the carrier towards who announces kernels to it (kernels/carrier/expected.h), and carries nothing. Any device communicator is its own.
 */
#include "../../kernels/carrier/expected.h"

#include "fakegpu.h"

FAKEGPU_API uint32_t fakegpu_asked, fakegpu_ended, fakegpu_lapsed;

FAKEGPU_API dyn_carrier_expected_of dynamicclCarrierExpected;
_Bool dynamicclCarrierExpected(const void *handle, struct dyn_carrier_expected *expected) {
  *expected = (struct dyn_carrier_expected){&fakegpu_asked, &fakegpu_ended, &fakegpu_lapsed};
  return handle != 0;
}

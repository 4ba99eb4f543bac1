/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays the carrier towards who announces kernels to it (kernels/carrier/expected.h), and carries nothing. Any device communicator is its own.
 */
#include "../../../kernels/carrier/expected.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT uint32_t fakeAsked, fakeLaunched, fakeEnded[DYN_EXPECTED_WORDS], fakeReplayed[DYN_EXPECTED_WORDS], fakeCaptured, fakeLapsed;

EXPORT dyn_carrier_expected_of dynamicclCarrierExpected;
_Bool dynamicclCarrierExpected(const void *handle, struct dyn_carrier_expected *expected) {
  *expected = (struct dyn_carrier_expected){&fakeAsked, &fakeLaunched, fakeEnded, fakeReplayed, &fakeCaptured, &fakeLapsed};
  return handle != 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels by themselves: a fatbin for every architecture that is to run them (make -C kernels fatbin).
 */
#include "kernels.cuh"

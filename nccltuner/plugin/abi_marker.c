/* SPDX-License-Identifier: Apache-2.0
 *
 * Which shared-memory layout this library speaks, for `dynamiccld doctor`: it reads the file without loading it.
 */
#include "../abi.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

__attribute__((used)) static const char abiMarker[] = "dynamiccl-abi=" TEXT(DYN_ABI_VERSION);

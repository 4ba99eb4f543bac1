/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "../glibc_late.h"

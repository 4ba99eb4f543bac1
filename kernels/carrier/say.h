/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines in NCCL's log, or on standard error before NCCL gave its logger.
 */
#ifndef DYN_CARRIER_SAY_H
#define DYN_CARRIER_SAY_H

#include "nccl_net_abi.h"

void carrier_logger(ncclDebugLogger_t logger);
#define carrier_warn(...) carrier_say(NCCL_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
void carrier_say(int level, const char *file, int line, const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * When the library enters the system's kernel to know whether something can be read. Included by test_lsa.c.
 */
#ifndef DYN_SYSTEM_STEPS_H
#define DYN_SYSTEM_STEPS_H

#include <stdarg.h>

/* In place of libc's, which the library enters the system's kernel by to know whether something can be read. */
static __thread unsigned asksSystem;
__attribute__((visibility("default"))) long syscall(long number, ...);
long syscall(long number, ...) {
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(arguments, long);
  va_end(arguments);
  asksSystem++;
  long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Programs ask on end while they wait, and nothing has been stopped. */
static void waited_for(void) {
  begin_with_call();
  asksSystem = 0;
  for (int i = 0; i < 3; i++) CHECK(async_error() == 0);
  CHECK(asksSystem == 0, "entered %u times", asksSystem);
  meet();
}

#endif

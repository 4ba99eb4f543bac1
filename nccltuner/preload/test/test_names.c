/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_names     with libnames.so beside it
 * A program with functions of its own that are called accept, send and recv (names.c) has these.
 */
#include <stdio.h>

int names_wrong(void), names_wrong_early(void);

int main(void) {
  int late = names_wrong(), early = names_wrong_early();
  if (late || early) fprintf(stderr, "another function was called%s%s\n", early ? " while libraries were initialised" : "", late ? " by the program" : "");
  return late || early;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * dlsym of the whole program. A lookup that is not of one of NCCL's names in a library goes on as if we were not there: with RTLD_NEXT, and
 * RTLD_DEFAULT, glibc asks by its return address who wants to know, so it is jumped to, not called. The others are lookup.c's.
 */
#ifdef __x86_64__
.macro keep_arguments
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
.endm
.macro have_arguments
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
.endm
  .text
  .globl dlsym
  .type dlsym, @function
dlsym: /* (handle, name) */
  .cfi_startproc
  endbr64
  cmpb $'n', (%rsi)
  jne 1f
  cmpb $'c', 1(%rsi)
  jne 1f
  cmpb $'c', 2(%rsi)
  jne 1f
  cmpb $'l', 3(%rsi)
  jne 1f
  cmpq $-1, %rdi /* RTLD_NEXT */
  je 1f
  testq %rdi, %rdi /* RTLD_DEFAULT */
  jne dyn_lookup_nccl
  keep_arguments
  movq %rsi, %rdi
  movq 24(%rsp), %rsi /* who asks */
  call dyn_lookup_hides
  have_arguments
  testb %al, %al
  jnz dyn_lookup_miss
1:
  movq dyn_lookup_next(%rip), %rax
  testq %rax, %rax
  je 2f
  jmp *%rax
2:
  keep_arguments
  call dyn_lookup_begin
  have_arguments
  jmp *%rax
  .cfi_endproc
  .size dlsym, . - dlsym
#elif defined(__aarch64__)
.macro keep_arguments
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  stp x0, x1, [sp, #16]
.endm
.macro have_arguments
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore x30
  .cfi_restore x29
  .cfi_def_cfa_offset 0
.endm
  .text
  .globl dlsym
  .type dlsym, %function
dlsym: /* (handle, name); who called is in x30 throughout */
  .cfi_startproc
  hint #34 /* bti c */
  ldrb w2, [x1]
  cmp w2, #'n'
  b.ne 1f
  ldrb w2, [x1, #1]
  cmp w2, #'c'
  b.ne 1f
  ldrb w2, [x1, #2]
  cmp w2, #'c'
  b.ne 1f
  ldrb w2, [x1, #3]
  cmp w2, #'l'
  b.ne 1f
  cmn x0, #1 /* RTLD_NEXT */
  b.eq 1f
  cbz x0, 3f /* RTLD_DEFAULT */
  b dyn_lookup_nccl
1:
  adrp x16, dyn_lookup_next
  ldr x16, [x16, #:lo12:dyn_lookup_next]
  cbz x16, 2f
  br x16
2:
  keep_arguments
  bl dyn_lookup_begin
  mov x16, x0
  have_arguments
  br x16
3:
  keep_arguments
  mov x0, x1
  mov x1, x30 /* who asks */
  bl dyn_lookup_hides
  tst w0, #0xff
  have_arguments
  b.eq 1b
  b dyn_lookup_miss
  .cfi_endproc
  .size dlsym, . - dlsym
#endif
  .section .note.GNU-stack, "", @progbits

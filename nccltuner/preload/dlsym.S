/* SPDX-License-Identifier: Apache-2.0
 *
 * dlsym of the whole program. A lookup that is not of one of NCCL's names in a library goes on as if we were not there: with RTLD_NEXT, and
 * RTLD_DEFAULT, glibc asks by its return address who wants to know, so it is jumped to, not called. The others are lookup.c's.
 */
#ifdef __x86_64__
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
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %rsi, %rdi
  movq 24(%rsp), %rsi /* who asks */
  call dyn_lookup_hides
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testb %al, %al
  jnz dyn_lookup_miss
1:
  movq dyn_lookup_next(%rip), %rax
  testq %rax, %rax
  je 2f
  jmp *%rax
2:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call dyn_lookup_begin
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size dlsym, . - dlsym
#endif
  .section .note.GNU-stack, "", @progbits

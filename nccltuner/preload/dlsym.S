/* SPDX-License-Identifier: Apache-2.0
 *
 * dlsym of the whole program. A lookup that is not of one of NCCL's names in a library goes on as if we were not there: with RTLD_NEXT
 * glibc asks by its return address who wants to know, so it is jumped to, not called. The others are lookup.c's.
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
  leaq 1(%rdi), %rax /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
  cmpq $1, %rax
  jbe 1f
  jmp dyn_lookup_nccl
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

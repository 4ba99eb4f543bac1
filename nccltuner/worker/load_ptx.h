/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of the compute load as PTX, which every GPU's driver compiles for itself: until `ns` have passed each
 * thread reads 16 bytes of memory and computes on them. Arguments: memory, its number of 16-byte cells, ns, and a place
 * for a result, without which the computing would be dropped.
 */
#ifndef WORKER_LOAD_PTX_H
#define WORKER_LOAD_PTX_H

static const char loadPtx[] =
    ".version 6.3\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry dynamiccl_load(.param .u64 memory, .param .u64 cells, .param .u64 ns, .param .u64 result)\n"
    "{\n"
    "  .reg .pred %p<3>;\n"
    "  .reg .b32 %r<8>;\n"
    "  .reg .f32 %f<8>;\n"
    "  .reg .b64 %d<12>;\n"
    "  ld.param.u64 %d1, [memory];\n"
    "  ld.param.u64 %d2, [cells];\n"
    "  ld.param.u64 %d3, [ns];\n"
    "  ld.param.u64 %d4, [result];\n"
    "  cvta.to.global.u64 %d1, %d1;\n"
    "  cvta.to.global.u64 %d4, %d4;\n"
    "  mov.u64 %d5, %globaltimer;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n" /* this thread's first cell ... */
    "  mov.u32 %r5, %nctaid.x;\n"
    "  mul.lo.u32 %r5, %r5, %r2;\n" /* ... and how far the next one is */
    "  cvt.u64.u32 %d6, %r4;\n"
    "  cvt.u64.u32 %d7, %r5;\n"
    "  cvt.rn.f32.u32 %f1, %r3;\n"
    "AGAIN:\n"
    "  rem.u64 %d8, %d6, %d2;\n"
    "  shl.b64 %d8, %d8, 4;\n"
    "  add.u64 %d8, %d1, %d8;\n"
    "  ld.global.v4.f32 {%f2, %f3, %f4, %f5}, [%d8];\n"
    "  add.f32 %f2, %f2, 0f3F800347;\n" /* 1.0001 */
    "  add.f32 %f3, %f3, %f4;\n"
    "  add.f32 %f3, %f3, %f5;\n"
    "  mov.u32 %r6, 0;\n"
    "COMPUTE:\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f3;\n"
    "  add.u32 %r6, %r6, 8;\n"
    "  setp.lt.u32 %p1, %r6, 256;\n"
    "  @%p1 bra COMPUTE;\n"
    "  add.u64 %d6, %d6, %d7;\n"
    "  mov.u64 %d9, %globaltimer;\n"
    "  sub.u64 %d9, %d9, %d5;\n"
    "  setp.lt.u64 %p2, %d9, %d3;\n"
    "  @%p2 bra AGAIN;\n"
    "  setp.eq.f32 %p1, %f1, 0f4640E400;\n" /* 12345: never, but no compiler knows */
    "  @%p1 st.global.f32 [%d4], %f1;\n"
    "  ret;\n"
    "}\n";

#endif

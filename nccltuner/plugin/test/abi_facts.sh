#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints what NCCL's own headers say about the plugin structs, one fact a line:
#   VERSION STRUCT FIELD OFFSET SIZE      ("." is the struct itself)
#   VERSION enum NAME VALUE 4
# testdata/nccl_abi_facts.txt is this output for the releases named in it; test_abi_facts.c compares our structs to it.
#
#   abi_facts.sh SOURCE_TREE...      unpacked NCCL source trees (each with src/ and makefiles/version.mk)
#   abi_facts.sh --dwarf LIB VERSION a libnccl.so.2 with debug information, for a release whose source is not published
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fields() {
  grep -oE '(FIELD|OPAQUE)\([A-Za-z0-9_]+, [A-Za-z0-9_.]+\)' "$here/abi_fields.h" | sed -E 's/.*\((.*), (.*)\)/\1 \2/'
}
structs() { fields | cut -d' ' -f1 | uniq; }
enums="ncclProfileGroup ncclProfileColl ncclProfileP2p ncclProfileProxyOp ncclProfileProxyStep ncclProfileProxyCtrl
ncclProfileKernelCh ncclProfileNetPlugin ncclProfileGroupApi ncclProfileCollApi ncclProfileP2pApi
ncclProfileKernelLaunch ncclProfileCeColl ncclProfileCeSync ncclProfileCeBatch ncclProfileKernelPhase
ncclProfilerProxyStepSendGPUWait ncclProfilerProxyStepRecvGPUWait ncclProfilerProxyCtrlIdle
ncclProfilerProxyCtrlAppendEnd ncclProfilerProxyOpInProgress_v4 ncclProfilerProxyStepSendPeerWait_v4
ncclProfilerNetPluginUpdate ncclProfilerKernelChStop ncclProfilerGroupStartApiStop ncclProfilerGroupEndApiStart
ncclProfilerCeCollStart ncclProfilerCeBatchComplete ncclProfilerKernelPhaseStop
ncclFuncBroadcast ncclFuncReduce ncclFuncAllGather ncclFuncReduceScatter ncclFuncAllReduce
ncclInt8 ncclUint8 ncclInt32 ncclUint32 ncclInt64 ncclUint64 ncclFloat16 ncclFloat32 ncclFloat64 ncclBfloat16
ncclFloat8e4m3 ncclFloat8e5m2"
macros="NCCL_ALGO_TREE NCCL_ALGO_RING NCCL_ALGO_COLLNET_DIRECT NCCL_ALGO_COLLNET_CHAIN NCCL_ALGO_NVLS
NCCL_ALGO_NVLS_TREE NCCL_ALGO_PAT NCCL_NUM_ALGORITHMS NCCL_PROTO_LL NCCL_PROTO_LL128 NCCL_PROTO_SIMPLE
NCCL_NUM_PROTOCOLS"

# The headers ask for CUDA's; only a few type names of them are used, so no toolkit is needed.
stubs() {
  mkdir -p "$work/inc"
  cat > "$work/inc/cuda_runtime.h" << 'END'
#pragma once
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#define CUDART_VERSION 13000
#define __CUDA_BF16_TYPES_EXIST__ 1
#define __CUDA_FP8_TYPES_EXIST__ 1
END
  for h in cuda.h cuda_fp16.h cuda_bf16.h cuda_fp8.h; do echo '#pragma once' > "$work/inc/$h"; done
}

from_source() {
  local tree=$1 v=$1/makefiles/version.mk major minor patch inc=$1/src/include dirs
  major=$(sed -n 's/^NCCL_MAJOR *:= *//p' "$v"); minor=$(sed -n 's/^NCCL_MINOR *:= *//p' "$v")
  patch=$(sed -n 's/^NCCL_PATCH *:= *//p' "$v")
  sed -e "s/\${nccl:Major}/$major/g" -e "s/\${nccl:Minor}/$minor/g" -e "s/\${nccl:Patch}/$patch/g" \
    -e 's/${nccl:Suffix}//g' -e 's/${nccl:Version}/0/g' "$tree/src/nccl.h.in" > "$work/inc/nccl.h"
  dirs=("$inc"); [ -d "$inc/plugin" ] && dirs=("$inc" "$inc/plugin")
  {
    echo '#define NCCL_OS_LINUX 1'
    printf '#include <cstdio>\n#include <cstddef>\n#include <cstdint>\n#include <sys/types.h>\n'
    echo '#include "nccl.h"'
    echo '#include "nccl_common.h"'
    echo '#include "nccl_tuner.h"'
    for d in "${dirs[@]}"; do [ -f "$d/nccl_profiler.h" ] && echo '#include "nccl_profiler.h"'; done
    echo 'int main() {'
    for s in $(structs); do
      # A struct counts only where this release defines it, by body or by alias.
      grep -rqE "(^} |typedef .* )$s;" "$inc" || continue
      echo "  printf(\"$major.$minor.$patch $s . 0 %zu\\n\", sizeof($s));"
      fields | awk -v s="$s" -v v="$major.$minor.$patch" '$1 == s {
        printf "  printf(\"%s %s %s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s*)0)->%s));\n",
          v, s, $2, s, $2, s, $2 }'
    done
    for e in $enums; do
      grep -qE "\b$e\b" "$work/inc/nccl.h" $(find "$inc" -name 'nccl_*.h') || continue
      echo "  printf(\"$major.$minor.$patch enum $e %d 4\\n\", (int)$e);"
    done
    for e in $macros; do
      printf '#ifdef %s\n  printf("%s enum %s %%d 4\\n", (int)%s);\n#endif\n' "$e" "$major.$minor.$patch" "$e" "$e"
    done
    echo '  return 0;'; echo '}'
  } > "$work/facts.cc"
  g++ -std=c++17 -w -I"$work/inc" $(printf -- '-I%s ' "${dirs[@]}") -o "$work/facts" "$work/facts.cc"
  "$work/facts"
}

from_dwarf() {
  local lib=$1 version=$2
  {
    for s in $(structs); do
      printf 'printf "%s %s . 0 %%lu\\n", sizeof(%s)\n' "$version" "$s" "$s"
      fields | awk -v s="$s" -v v="$version" '$1 == s {
        printf "printf \"%s %s %s %%lu %%lu\\n\", (unsigned long)&((%s*)0)->%s, sizeof(((%s*)0)->%s)\n",
          v, s, $2, s, $2, s, $2 }'
    done
    for e in $enums; do printf 'printf "%s enum %s %%d 4\\n", (int)%s\n' "$version" "$e" "$e"; done
  } > "$work/facts.gdb"
  # A name that this library does not know ends its own line only; gdb says so on stderr.
  while IFS= read -r line; do
    printf 'python\ntry:\n  gdb.execute(r"""%s""")\nexcept gdb.error: pass\nend\n' "$line"
  done < "$work/facts.gdb" > "$work/tolerant.gdb"
  gdb -batch -nx -x "$work/tolerant.gdb" "$lib" 2> /dev/null | grep "^$version "
}

stubs
if [ "${1:-}" = --dwarf ]; then
  from_dwarf "$2" "$3"
else
  for tree in "$@"; do from_source "$tree"; done
fi

#!/usr/bin/env bash
# Plugin and preload library for aarch64 (Grace), and their tests that need no kernels, on whatever machine this is: nccltuner/aarch64.sh
# Wants Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static. qemu orders memory as the machine it runs on does: what a
# barrier is needed for shows on the real one alone.
set -euo pipefail
cd "$(dirname "$0")/.."
cc=${CC_AARCH64:-aarch64-linux-gnu-gcc} qemu=${QEMU_AARCH64:-qemu-aarch64-static} root=${ROOT_AARCH64:-/usr/aarch64-linux-gnu}
for program in "$cc" "$qemu"; do
  command -v "$program" >/dev/null || { echo "$0: $program is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"; exit 2; }
done
build=$PWD/.cache/aarch64
cross() { make -s -C "nccltuner/$1" CC="$cc" LIB="$build/lib" BUILD="$build/$1" "${@:2}"; }
tests=$build/preload/test
alone=(test_graphs test_watch test_windows test_peers test_movers test_pace test_hub fence_check)
preloaded=("test_preload local" "test_preload global" "test_preload none" test_elsewhere test_absent test_hook test_probe test_groups test_sends)
cross plugin all
built=("$tests/libnccl.so.2" "$tests/libcuda.so.1" "$tests/libother.so" "$tests/test_names" "${alone[@]/#/$tests/}")
for test in "${preloaded[@]}"; do built+=("$tests/${test% *}"); done
cross preload all "${built[@]}"
GOARCH=arm64 CGO_ENABLED=0 go build -o "$build/dynamiccld" ./cmd/dynamiccld

n=0
run() {
  timeout 300 "$qemu" -L "$root" "$@" >"$build/said" 2>&1 || { cat "$build/said"; echo "$0: failed: $*"; exit 1; }
  n=$((n + 1))
}
for test in "${alone[@]}"; do run "$tests/$test"; done
library=$build/lib/libdynamiccl.so
run -E LD_PRELOAD="$library" "$tests/test_names"
for test in "${preloaded[@]}"; do
  # shellcheck disable=SC2086 # a name and what is to be done
  run -E LD_PRELOAD="$library" "$tests/"$test "$tests"
done
run "$build/dynamiccld" version
echo "aarch64: $n runs, no failure"

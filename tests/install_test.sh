#!/usr/bin/env bash
# Installs the build into a fresh folder, moves it, and builds and runs examples/gemm.cc against it: through
# find_package, and through pkg-config.
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --build "$build" --target lapidary_library lapidary lapidary-worker >/dev/null
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
export LAPIDARY_STORE="$work/store.db" LAPIDARY_LOCKS="$work"

cmake -S "$source/examples" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/gemm" | tee "$work/out"
grep -q 'tuned now' "$work/out"
"$work/build/gemm" | grep 'from the store' >/dev/null

"$work/build/first_kernel" | grep 'y\[999\] = 2997' >/dev/null

sed -i "s|^prefix=.*|prefix=$work/moved|" "$work"/moved/lib/*/pkgconfig/lapidary.pc "$work"/moved/lib/pkgconfig/lapidary.pc 2>/dev/null || true
pc=$(find "$work/moved" -name lapidary.pc -printf '%h')
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs lapidary)
eval "g++ -std=c++20 -O1 '$source/examples/gemm.cc' -o '$work/by-pkg-config' $flags"
"$work/by-pkg-config" | grep 'from the store' >/dev/null

# The installed program finds the installed suites and its worker.
(cd /; "$work/moved/bin/lapidary" tune odd --only 1x8x16 --store "$work/other.db" | grep winner >/dev/null)

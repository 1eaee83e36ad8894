#!/usr/bin/env bash
# Makes folders that run as they are on another x86-64 Linux with glibc >= 2.35, such as a GPU machine without packages:
#   build/bundle            the programs, the suites, the docs, and the tests that want a GPU
#   build/bundle-libraries  the optional CPU libraries; LD_LIBRARY_PATH=build/bundle-libraries finds them where the
#                           system has none. WITH_LIBRARIES=0 leaves this folder out.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/bundle
libraries=build/bundle-libraries
make -s build
# Tests are called gpu_*_test, programs that they start gpu-*. There are none where GoogleTest is not.
mapfile -t tests < <(cmake --build build/release --target help |
                     sed -nE 's/^(gpu_[A-Za-z0-9_]+_test|gpu-[A-Za-z0-9-]+): phony$/\1/p')
rm -rf "$out" "$libraries"
mkdir -p "$out/bin"
cp build/release/bin/lapidary build/release/bin/lapidary-worker "$out/bin/"
cp -r suites docs LICENSE README.md "$out/"
if [ ${#tests[@]} -gt 0 ]; then
  cmake --build build/release -j "$(nproc)" --target "${tests[@]}"
  mkdir -p "$out/tests"
  cp "${tests[@]/#/build/release/bin/}" "$out/tests/"
fi
mapfile -t programs < <(find "$out/bin" "$out/tests" -type f 2>/dev/null)
strip "${programs[@]}"
tests/symbols_test.sh "${programs[@]}" >&2
if [ "${WITH_LIBRARIES:-1}" = 1 ]; then
  mkdir -p "$libraries"
  for name in libopenblas.so.0 libgfortran.so.5 libquadmath.so.0 libgomp.so.1 libdnnl.so.2 libOpenCL.so.1; do
    path=$(ldconfig -p | awk -v name="$name" '$1 == name && !found++ {print $NF}')
    [ -z "$path" ] || cp -L "$path" "$libraries/$name"
  done
  du -sh "$libraries" | awk '{print "libraries: " $2 ", " $1}'
fi
du -sh "$out" | awk '{print "bundle: " $2 ", " $1}'

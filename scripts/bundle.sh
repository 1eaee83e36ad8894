#!/usr/bin/env bash
# Makes build/bundle: a folder that runs as it is on another x86-64 Linux with glibc >= 2.35.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/bundle
make -s build
rm -rf "$out"
mkdir -p "$out/bin"
cp build/release/bin/lapidary build/release/bin/lapidary-worker "$out/bin/"
cp -r suites docs LICENSE README.md "$out/"
# Optional libraries lie apart: LD_LIBRARY_PATH=bundle/lib finds them where the system has none.
if [ "${WITH_LIBRARIES:-1}" = 1 ]; then
  mkdir -p "$out/lib"
  for name in libopenblas.so.0 libgfortran.so.5 libquadmath.so.0 libgomp.so.1 libdnnl.so.2 libOpenCL.so.1; do
    path=$(ldconfig -p | awk -v name="$name" '$1 == name {print $NF; exit}')
    [ -z "$path" ] || cp -L "$path" "$out/lib/$name"
  done
fi
strip "$out/bin/"*
du -sh "$out" | awk '{print "bundle: " $2 ", " $1}'

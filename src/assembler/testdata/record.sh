#!/usr/bin/env bash
# Records what ptxas says to each file of this folder, NAME.ptx to NAME.log, run as the assembler runs it; times, which
# differ from run to run, become 1 ms. The logs here are of ptxas 13.0.88. Usage: record.sh [PTXAS]
set -euo pipefail
cd "$(dirname "$0")"
ptxas=${1:-ptxas}
for ptx in *.ptx; do
  target=$(sed -n '1s/.*-arch=//p' "$ptx")
  "$ptxas" -v -O3 -arch="$target" /proc/self/fd/3 -o /dev/null 3<"$ptx" 2>"${ptx%.ptx}.log" || true
  sed -i 's/Compile time = .* ms/Compile time = 1.000 ms/' "${ptx%.ptx}.log"
done

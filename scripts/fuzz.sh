#!/usr/bin/env bash
# Runs every fuzz target for so many seconds (default 600), one after the other a core. The corpus stays in
# build/fuzz/corpus. Usage: scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
cmake --preset fuzz -DLAPIDARY_TESTS=OFF >/dev/null
targets=$(find src -name 'fuzz_*.cc' -printf '%f\n' | sed 's/\.cc$//' | sort)
# shellcheck disable=SC2086
cmake --build build/fuzz -j "$(nproc)" --target $targets
for target in $targets; do mkdir -p "build/fuzz/corpus/$target"; done
echo "$targets" | xargs -P "$(nproc)" -I{} bash -c \
  'build/fuzz/bin/{} -max_total_time='"$seconds"' -timeout=20 -rss_limit_mb=4096 -artifact_prefix=build/fuzz/{}- build/fuzz/corpus/{} >build/fuzz/{}.log 2>&1 \
   && echo "{}: clean, $(grep -oE "stat::number_of_executed_units: *[0-9]+|Done [0-9]+ runs" build/fuzz/{}.log | tail -1)" || { tail -30 build/fuzz/{}.log; echo "{}: FAILED"; exit 255; }'

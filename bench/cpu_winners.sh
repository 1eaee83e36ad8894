#!/usr/bin/env bash
# Tunes every problem of every suite with m <= 128 on this machine's CPU, then, in a new process, measures the winners
# against the default again. Resumes where it was stopped. Usage: bench/cpu_winners.sh BIN OUT [TUNE_TIME]
#   BIN  folder of lapidary (build/release/bin, or bin of a bundle); OUT  folder for the store and the results
set -uo pipefail
bin=$1 out=$2 limit=${3:-1h}
mkdir -p "$out"
suites=(llama3-8b llama3-8b-fp8 llama3-70b-tp8 qwen3-32b gpt-oss-20b deepseek-v3 epilogues odd square layouts strided batch)
common=(--max-m 128 --store "$out/store.db")
"$bin/lapidary" doctor --store "$out/store.db" >"$out/doctor.txt"
"$bin/lapidary" tune "${suites[@]}" "${common[@]}" --budget-total "$limit" --budget 60s -q --json="$out/tune.json" >"$out/tune.txt" 2>"$out/tune.err"
echo "tune: exit $?: $(tail -1 "$out/tune.txt")"
[ "${TUNE_ONLY:-0}" = 1 ] && exit 0
"$bin/lapidary" bench "${suites[@]}" "${common[@]}" --against default -q --json="$out/bench-default.json" >"$out/bench-default.txt" 2>"$out/bench.err"
echo "bench: exit $?: $(tail -1 "$out/bench-default.txt")"

#!/usr/bin/env bash
# Every figure that we publish of a GPU, from a bundle alone. Each step resumes: results lie in OUT, stored winners in
# OUT/store.db, so a step that was cut off goes on when the same command runs again.
# Usage: bench/gpu.sh BUNDLE OUT STEP... with steps
#   tests            the GPU tests of the bundle: device, faults, library, conformance
#   tune[=SECONDS]   tunes the suites, a JSON each; at most so many seconds in all, default 500
#   burst[=RUN]      stored winners against cuBLASLt's first pick, all suites, new process; RUN 1, 2 or 3
#   large[=RUN]      the same of the products with m >= 2048, whose time depends on the card's clock
#   steady           the same under the power limit, twelve named shapes
#   kernels          example kernels against cuBLASLt: gemm_mma at 4096^3 (needs a ptxas there)
#   report           the tables of OUT as markdown (needs python3)
set -uo pipefail
bundle=$(cd "$1" && pwd) out=$2
shift 2
mkdir -p "$out"
here=$(cd "$(dirname "$0")" && pwd)
lapidary=$bundle/bin/lapidary
suites=(llama3-8b llama3-8b-fp8 deepseek-v3 square odd layouts strided batch epilogues)
common=(--device cuda:0 --store "$out/store.db" -q)
"$lapidary" doctor --device cuda:0 --store "$out/store.db" >"$out/doctor.txt"

step_tests() {
  local failed=0
  for test in "$bundle"/tests/gpu_*_test; do
    local log="$out/$(basename "$test").txt"
    timeout 240 "$test" >"$log" 2>&1 || failed=1
    grep -E '^\[  (PASSED|FAILED|SKIPPED)|costs|proved|plan.run' "$log" | sed "s|^|$(basename "$test"): |"
  done
  return $failed
}
step_tune() {
  local end=$((SECONDS + ${1:-500}))
  for suite in "${suites[@]}"; do
    local left=$((end - SECONDS))
    [ "$left" -gt 5 ] || { echo "tune: time is up before $suite; the same command goes on"; return 6; }
    "$lapidary" tune "$suite" "${common[@]}" --budget-total "${left}s" --json="$out/tune-$suite.json" >"$out/tune-$suite.txt" 2>"$out/tune-$suite.err"
    echo "tune $suite: exit $?: $(grep -E '^[0-9]+ of ' "$out/tune-$suite.txt"); $(wc -l <"$out/tune-$suite.err") lines on stderr"
  done
}
# The stored winners of all suites against the first pick; NAME-SUITE.json. More words limit what of a suite is measured.
against_first_pick() {
  local name=$1 suite code
  shift
  for suite in "${suites[@]}"; do
    [ -s "$out/$name-$suite.json" ] && continue
    "$lapidary" bench "$suite" "${common[@]}" --against default --all "$@" --json="$out/part.json" >"$out/$name-$suite.txt" 2>"$out/$name-$suite.err"
    code=$?
    echo "$name $suite: exit $code: $(tail -1 "$out/$name-$suite.txt")"
    # 2: the suite has no such m. 3: nothing of it has a winner. Anything else is no result, and runs again.
    [ $code -eq 2 ] && [ $# -gt 0 ] && continue
    [ $code -eq 0 ] || [ $code -eq 3 ] || return $code
    mv -f "$out/part.json" "$out/$name-$suite.json"
  done
}
step_burst() { against_first_pick "burst-${1:-1}"; }
step_large() { against_first_pick "large-${1:-1}" --only-m 2048,4095,4096,6144,8192,16384; }
# suite, line, m
shapes=("llama3-8b llama3-8b.qkv 64" "llama3-8b llama3-8b.qkv 2048" "llama3-8b llama3-8b.qkv 8192"
        "llama3-8b llama3-8b.down 2048" "llama3-8b-fp8 llama3-8b-fp8.qkv 2048" "deepseek-v3 deepseek-v3.dense_up 4096"
        "deepseek-v3 deepseek-v3.o 4096" "deepseek-v3 deepseek-v3.expert_down 4096" "deepseek-v3 deepseek-v3.dense_down 4096"
        "deepseek-v3 deepseek-v3.router 4096" "square square.8192.bf16 8192" "square square.8192.e4m3 8192")
step_steady() {
  local i=0
  for shape in "${shapes[@]}"; do
    read -r suite line m <<<"$shape"
    i=$((i + 1))
    [ -s "$out/steady-$i.json" ] && continue
    "$lapidary" bench "$suite" "${common[@]}" --only "$line" --only-m "$m" --against default --steady 2s --json="$out/part.json" >"$out/steady-$i.txt" 2>"$out/steady-$i.err"
    local code=$?
    echo "steady $shape: exit $code: $(grep steady "$out/steady-$i.txt")"
    [ $code -eq 0 ] || return $code
    mv -f "$out/part.json" "$out/steady-$i.json"
  done
}
step_kernels() {
  "$bundle/tests/gpu-kernels-bench" 4096 4096 4096 >"$out/part.json" 2>"$out/kernels.err" || { cat "$out/kernels.err"; return 1; }
  mv -f "$out/part.json" "$out/kernels.json"
  echo "kernels: $(grep -o '"ratio": [0-9.]*, "tflops": [0-9.]*' "$out/kernels.json")"
}
code=0
for step in "$@"; do
  name=${step%%=*} value=
  [ "$name" = "$step" ] || value=${step#*=}
  case $name in
    tests | tune | burst | large | steady | kernels) "step_$name" $value || code=1 ;;
    report) python3 "$here/gpu_report.py" "$out" || code=1 ;;
    *) echo "gpu.sh: '$step' is no step; use tests, tune, burst, large, steady, kernels or report" >&2; exit 2 ;;
  esac
done
exit $code

#!/usr/bin/env bash
# Format, clang-tidy and shell syntax, as errors. clang-tidy reads our own sources, not the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files 'src/**.cc' 'src/**.h' 'include/**.h' 'tests/**.cc' 'tests/**.h' 'examples/**.cc' 'bench/**.cc')
clang-format-19 --dry-run --Werror "${sources[@]}"
for script in demo.sh test.sh scripts/*.sh .ci/run; do bash -n "$script"; done
cmake --preset clang -DLAPIDARY_TESTS=OFF >/dev/null
# A file that has not changed since it was last found clean is not read again.
mkdir -p build/lint
stamp() { { cat "$1" .clang-tidy; clang++-19 -std=c++20 -Isrc -Iinclude -DFMT_HEADER_ONLY=1 -MM "$1" | tr -d '\\' | tr ' ' '\n' | grep -E '^(src|include)/' | sort -u | xargs cat; } | sha256sum | cut -c1-40; }
todo=()
for source in $(git ls-files 'src/**.cc' | grep -vE '_test\.cc$|/testing_|/fuzz_|/isa_'); do
  mark=build/lint/$(stamp "$source")
  [ -e "$mark" ] || todo+=("$source $mark")
done
printf '%s\n' "${todo[@]:-}" | grep . | xargs -P "$(nproc)" -L 1 bash -c \
  'clang-tidy-19 -p build/clang --quiet "$0" 2>/dev/null >"$1.log" && mv "$1.log" "$1" || { cat "$1.log"; exit 1; }' || { echo "lint: clang-tidy found something" >&2; exit 1; }
echo "lint: ${#sources[@]} files are clean"

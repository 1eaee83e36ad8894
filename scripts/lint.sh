#!/usr/bin/env bash
# Format, clang-tidy and shell syntax, as errors. clang-tidy reads our own sources, not the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files 'src/**.cc' 'src/**.h' 'include/**.h' 'tests/**.cc' 'tests/**.h' 'examples/**.cc' 'bench/**.cc')
clang-format-19 --dry-run --Werror "${sources[@]}"
for script in demo.sh test.sh scripts/*.sh bench/*.sh tests/*.sh .ci/run; do bash -n "$script"; done
cmake --preset clang -DLAPIDARY_TESTS=OFF >/dev/null
# A file is not read again while it, its headers and the rules are as when it was last found clean: the mark's name
# is their digest. What clang-tidy says goes into a temporary file of this run.
mkdir -p build/lint
stamp() {
  local headers
  headers=$(clang++-19 -std=c++20 -Isrc -Iinclude -DFMT_HEADER_ONLY=1 -MM "$1" | tr -d '\\' | tr ' ' '\n' | grep -E '^(src|include)/' | sort -u)
  { cat "$1" .clang-tidy; echo "$headers" | xargs -r cat; } | sha256sum | cut -c1-40
}
todo=()
for source in $(git ls-files 'src/**.cc' | grep -vE '_test\.cc$|/testing_|/fuzz_|/isa_'); do
  mark=build/lint/$(stamp "$source")
  [ -e "$mark" ] || todo+=("$source" "$mark")
done
tidy() {
  local said
  said=$(mktemp "$2.XXXXXX")
  if clang-tidy-19 -p build/clang --quiet "$1" >"$said" 2>/dev/null; then mv "$said" "$2"; else cat "$said"; rm -f "$said"; return 1; fi
}
export -f tidy
if [ ${#todo[@]} -gt 0 ]; then
  printf '%s\0' "${todo[@]}" | xargs -0 -r -n 2 -P "$(nproc)" bash -c 'tidy "$0" "$1"' ||
    { echo "lint: clang-tidy found something" >&2; exit 1; }
fi
echo "lint: ${#sources[@]} files are clean"

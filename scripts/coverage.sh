#!/usr/bin/env bash
# Line coverage of each room by the fast tests: builds with gcov, runs them, prints a line a room.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset coverage >/dev/null
cmake --build build/coverage -j "$(nproc)"
find build/coverage -name '*.gcda' -delete
ctest --test-dir build/coverage -LE slow -j 1 >build/coverage/ctest.log || { tail -40 build/coverage/ctest.log; exit 1; }
# A process that is killed, or may write no more, while it writes its counts spoils the room's: the store is counted
# without the tests that do so.
find build/coverage/CMakeFiles/lapidary_store.dir -name '*.gcda' -delete
build/coverage/bin/store_test --gtest_filter='-Slow*:Kill.*:Sqlite.AFullDisk*' >build/coverage/store.log || { tail -40 build/coverage/store.log; exit 1; }
for room in problem store tuner reference numeric candidate backends worker api cli support driver; do
  find build/coverage/CMakeFiles/lapidary_$room.dir -name '*.gcda' 2>/dev/null | xargs -r gcov -n 2>/dev/null |
    awk -v room="$room" -v root="$PWD/src/$room/" '
      /^File/ {file = $2; gsub(/\x27/, "", file)}
      /^Lines executed/ {split($0, a, /[:% ]+/); if (index(file, root) == 1 || index(file, "src/" room "/") == 1) {lines += a[5]; hit += a[3] * a[5] / 100}}
      END {if (lines > 0) printf "%-10s %6.1f %% of %d lines\n", room, 100 * hit / lines, lines}'
done

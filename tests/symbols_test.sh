#!/usr/bin/env bash
# Programs must run wherever glibc is 2.35 or newer, and need libc, libm and the loader alone.
set -euo pipefail
newest=2.35
for program in "$@"; do
  versions=$(objdump -T "$program" | grep -oE 'GLIBC_[0-9]+\.[0-9.]+' | sort -u -V)
  [ -n "$versions" ] || { echo "$program: no versioned symbol found; is it a program?"; exit 1; }
  highest=$(echo "$versions" | tail -1 | cut -d_ -f2)
  if [ "$(printf '%s\n%s\n' "$highest" "$newest" | sort -V | tail -1)" != "$newest" ]; then
    echo "$program needs glibc $highest, newer than $newest:"
    objdump -T "$program" | grep "GLIBC_$highest"
    exit 1
  fi
  extra=$(objdump -p "$program" | awk '$1 == "NEEDED" {print $2}' | grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2)$' || true)
  [ -z "$extra" ] || { echo "$program needs $extra"; exit 1; }
  echo "$program: glibc $highest"
done

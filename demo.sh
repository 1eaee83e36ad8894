#!/usr/bin/env bash
# Sets everything up, builds, and tunes real GEMMs on this machine. Again: everything comes from the store.
set -euo pipefail
cd "$(dirname "$0")"
scripts/setup.sh build
make -s build
lapidary=build/release/bin/lapidary
store=${LAPIDARY_STORE:-build/demo-store.db}
"$lapidary" doctor --store "$store"
echo
"$lapidary" tune llama3-8b gpt-oss-20b --only qkv --only .o --only expert_down --max-m 2 --store "$store" --budget 20s

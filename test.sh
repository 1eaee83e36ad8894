#!/usr/bin/env bash
# Sets everything up, builds, and runs the tests that need no GPU and no patience. `make test-full` runs the rest.
set -euo pipefail
cd "$(dirname "$0")"
scripts/setup.sh test
make -s test

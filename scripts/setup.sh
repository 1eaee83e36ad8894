#!/usr/bin/env bash
# Installs what building (and, with "test", testing) Lapidary needs on Debian 12. Safe to run again: what is there
# stays. Usage: scripts/setup.sh build|test
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-build}

packages=(g++ make cmake ninja-build ccache ca-certificates libfmt-dev libcli11-dev nlohmann-json3-dev libsqlite3-dev
          libxxhash-dev libssl-dev libdnnl2 libopenblas0-pthread python3-pip)
if [ "$mode" = test ]; then
  packages+=(git libgtest-dev libgmock-dev libbenchmark-dev pkg-config clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep 'ok installed' >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
    sudo=sudo
  fi
  echo "setup: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# ptxas: what is there already, else NVIDIA's wheel into the build folder. Nothing on a CPU needs it yet, so a
# network without it is no reason to stop; it is tried once a day.
ptxas=build/tools/ptxas
tried=build/tools/ptxas.missing
if ! command -v ptxas >/dev/null && [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/ptxas" ] && [ ! -x "$ptxas" ] &&
   [ -z "$(find "$tried" -mmin -1440 2>/dev/null)" ]; then
  mkdir -p build/tools
  wheels=$(mktemp -d)
  if python3 -m pip download -q --no-deps -d "$wheels" nvidia-cuda-nvcc==13.0.88 2>/dev/null; then
    python3 - "$wheels" "$ptxas" <<'PY'
import glob, os, shutil, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith("/bin/ptxas"))
with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target)
os.chmod(sys.argv[2], 0o755)
PY
    echo "setup: ptxas is $ptxas" >&2
  else
    touch "$tried"
    echo "setup: no ptxas found and its wheel cannot be had; CPU work does not need it" >&2
  fi
  rm -rf "$wheels"
fi

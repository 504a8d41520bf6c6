#!/usr/bin/env bash
# Sets the peers up in a folder: a virtual environment with transformers and TRL, and llama.cpp built from the source package that
# llama-cpp-python ships. Repeats nothing that is done. Everything comes through pip.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: benchmarks/peers/setup.sh [FOLDER [PART...]]

  FOLDER   where everything goes; default build/peers
  PART     python     virtual environment: transformers, TRL, torch (CPU build)      2 minutes, 1.5 GB
           llama_cpp  llama.cpp's libraries and our benchmark program on them       10 minutes and more on 2 cores
           default: both
TXT
}

torch_version=2.13.0
python_packages=(transformers==5.23.0 trl==1.16.0 accelerate==1.15.0 datasets==5.2.0)
llama_package=llama-cpp-python llama_version=0.3.36

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
say() { printf 'peers: %s\n' "$*" >&2; }

# The CPU build where the package index has one under that name; else the default build.
python_part() {
  local wanted="torch $torch_version ${python_packages[*]}"
  if [ "$(cat "$1/venv/peers-setup" 2>/dev/null)" = "$wanted" ]; then return; fi
  [ -x "$1/venv/bin/pip" ] || python3 -m venv "$1/venv"
  say "installing $wanted"
  "$1/venv/bin/pip" install -q "torch==$torch_version+cpu" 2>/dev/null || "$1/venv/bin/pip" install -q "torch==$torch_version"
  "$1/venv/bin/pip" install -q "${python_packages[@]}"
  echo "$wanted" >"$1/venv/peers-setup"
}

llama_cpp_part() {
  local source="$1/$llama_package-$llama_version" archive
  if [ ! -d "$source" ]; then
    say "fetching $llama_package $llama_version"
    # pip also prepares the package's metadata; its build tools go into a temporary environment.
    python3 -m pip download -q --no-deps --no-binary :all: -d "$1" "$llama_package==$llama_version"
    archive=$(find "$1" -maxdepth 1 -name 'llama_cpp_python-*.tar.gz')
    mkdir "$source.part"
    tar -xzf "$archive" -C "$source.part" --strip-components=1
    mv "$source.part" "$source"
  fi
  say "building llama.cpp (minutes)"
  cmake -S "$here/llama_cpp" -B "$1/llama_cpp" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DLLAMA_CPP_DIR=$source/vendor/llama.cpp" >/dev/null
  nice -n 15 cmake --build "$1/llama_cpp" --target llama_bench -j "$(nproc)"
}

case "${1:-}" in
  -h | --help | help)
    usage
    exit
    ;;
esac
folder=$(realpath -m "${1:-$here/../../build/peers}")
shift || true
mkdir -p "$folder"
parts=("$@")
[ $# -gt 0 ] || parts=(python llama_cpp)
for part in "${parts[@]}"; do
  case "$part" in
    python) python_part "$folder" ;;
    llama_cpp) llama_cpp_part "$folder" ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done
say "done: $folder"

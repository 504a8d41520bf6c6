#!/usr/bin/env bash
# Measures the peers one after the other and prints JSON lines. What is not installed is skipped.
set -uo pipefail

usage() {
  cat <<'TXT'
usage: benchmarks/peers/run.sh [--folder F] [--threads N] [--model NAME]... [--peer NAME]...

  --folder    where setup.sh put the peers; default build/peers. Models are made there too
  --threads   of each peer; default 2
  --model     tiny, memory_bound (benchmarks/models/NAME.json); default: both
  --peer      agree (log-probs of all are compared), transformers, llama_cpp, trl; default: all. trl runs on tiny alone
  --furlong   the program for `agree`; default build/release/furlong
TXT
}

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$root/build/peers threads=2 furlong=$root/build/release/furlong models=() peers=()
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=$2 ;;
    --threads) threads=$2 ;;
    --furlong) furlong=$2 ;;
    --model) models+=("$2") ;;
    --peer) peers+=("$2") ;;
    *)
      usage >&2
      [ "$1" = --help ]
      exit
      ;;
  esac
  shift 2
done
[ ${#models[@]} -gt 0 ] || models=(tiny memory_bound)
[ ${#peers[@]} -gt 0 ] || peers=(agree transformers llama_cpp trl)

say() { printf 'peers: %s\n' "$*" >&2; }
python=$folder/venv/bin/python llama_bench=$folder/llama_cpp/llama_bench
llama_source=$(find "$folder" -maxdepth 4 -path '*/vendor/llama.cpp' -type d 2>/dev/null | head -n 1)
export HF_HUB_OFFLINE=1

have_python() {
  [ -x "$python" ] && return
  say "skipped $1: there is no $python; run benchmarks/peers/setup.sh ${folder@Q} python"
  return 1
}
have_llama() {
  [ -x "$llama_bench" ] && return
  say "skipped $1: there is no $llama_bench; run benchmarks/peers/setup.sh ${folder@Q} llama_cpp"
  return 1
}

make_model() {
  [ -f "$folder/models/$1/model.gguf" ] && return
  [ -f "$folder/models/$1/config.json" ] && [ -z "$llama_source" ] && return
  have_python "model $1" || return
  mkdir -p "$folder/models"
  "$python" "$here/make_model.py" "$root/benchmarks/models/$1.json" "$folder/models/$1" ${llama_source:+--llama-cpp "$llama_source"} >&2
}

measure() {
  local model=$folder/models/$1
  case "$2" in
    agree)
      have_python agree || return 0
      local others=()
      [ -x "$furlong" ] && others+=(--furlong "$furlong") || say "agree: without furlong, there is no $furlong"
      [ -x "$llama_bench" ] && others+=(--llama-bench "$llama_bench") || say "agree: without llama.cpp, there is no $llama_bench"
      "$python" "$here/check_log_probs.py" "$model" "${others[@]}"
      ;;
    transformers) have_python "$2" && "$python" "$here/bench_transformers.py" "$model" --threads "$threads" ;;
    llama_cpp)
      have_llama "$2" || return 0
      for batch in 1 64; do
        "$llama_bench" speed "$model/model.gguf" "$threads" 16 64 "$batch" 3
      done
      ;;
    trl)
      [ "$1" = tiny ] || return 0
      have_python "$2" && "$python" "$here/bench_trl.py" "$model" "$root/tests/golden/data/tokenizer/deepseek_v3_mini4096.tokenizer.json" \
        --threads "$threads"
      ;;
    *)
      say "there is no peer $2"
      return 2
      ;;
  esac
}

for model in "${models[@]}"; do
  make_model "$model" || continue
  for peer in "${peers[@]}"; do
    # The model's name and the load into each line; everything else goes to standard error.
    measure "$model" "$peer" | sed -u "s/^{/{\"model\": \"$model\", /"
    [ "${PIPESTATUS[0]}" = 0 ] || say "$peer failed on $model"
  done
done

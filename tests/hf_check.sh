#!/bin/sh
# Do Hugging Face's transformers and tally mean the same model by the same files? Both ways: tests/hf_check.py says how.
#
#   tests/hf_check.sh [TALLY]          TALLY: the binary, by default build/tally
#
# Needs a Python with torch and transformers: $TALLY_HF_PYTHON, else .venv/bin/python, else python3. Without one it exits with 77,
# which stands for "skipped".
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tally=${1:-$root/build/tally}
has_both='import torch, transformers, safetensors'

python=${TALLY_HF_PYTHON:-}
if [ -n "$python" ]; then
    "$python" -c "$has_both" || { echo "hf_check: TALLY_HF_PYTHON=$python cannot import torch and transformers" >&2; exit 1; }
else
    for candidate in "$root/.venv/bin/python" python3; do
        if "$candidate" -c "$has_both" 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "hf_check: SKIPPED: no Python has torch and transformers; 'make hf-venv' makes one, or set TALLY_HF_PYTHON" >&2
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# train NAME KIND FLAGS...: a model that has learnt a little of this repository's C, with that kind of tokenizer.
train() {
    name=$1 kind=$2
    shift 2
    "$tally" data prepare "$root"/base/*.c --tokenizer "$kind" --out "$work/data-$kind" >"$work/log" 2>&1 &&
        "$tally" train --data "$work/data-$kind" --out-dir "$work/$name" --n-layer 2 --n-head 4 --n-embd 48 --block-size 33 \
            --batch-size 4 --max-iters 30 --learning-rate 1e-2 --eval-interval 0 --sample-interval 0 "$@" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; echo "hf_check: FAILED: no checkpoint '$name' from $tally" >&2; exit 1; }
}

train plain byte --dropout 0.1
train padded-no-bias char --no-bias --vocab-multiple 128

HF_HUB_OFFLINE=1 "$python" "$root/tests/hf_check.py" "$tally" "$work" "$work/data-byte" \
    "$work/plain/step-30" "$work/padded-no-bias/step-30"

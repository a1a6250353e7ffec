#!/bin/sh
# Are the ids of `--tokenizer gpt2:DIR` those of OpenAI's tiktoken? tests/tiktoken_check.py says of which texts.
#
#   tests/tiktoken_check.sh [TALLY]    TALLY: the binary, by default build/tally
#
# Compares 4 MB; with LONG=1, 50 MB; MEGABYTES=n. GPT-2's vocabulary and merges are taken from TALLY_TEST_DATA. tiktoken: in
# .venv or the system's Python, or else installed into build/tiktoken-venv. Without any of these it exits with 77, which stands for
# "skipped".
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tally=${1:-$root/build/tally}
data=${TALLY_TEST_DATA:-}
own=$root/build/tiktoken-venv
megabytes=${MEGABYTES:-${LONG:+50}}

skip() {
    echo "tiktoken_check: SKIPPED: $1" >&2
    exit 77
}

find_python() {
    for candidate in "$root/.venv/bin/python" "$own/bin/python" python3; do
        "$candidate" -c 'import tiktoken' 2>/dev/null && python=$candidate && return
    done
    return 1
}

[ -f "$data/gpt2-vocab.json" ] && [ -f "$data/gpt2-merges.txt" ] ||
    skip "TALLY_TEST_DATA names no folder with gpt2-vocab.json and gpt2-merges.txt"
find_python || {
    timeout 120 python3 -m venv "$own" >/dev/null 2>&1 &&
        PIP_DEFAULT_TIMEOUT=15 PIP_RETRIES=1 timeout 240 "$own/bin/pip" install -q tiktoken >/dev/null 2>&1 && find_python
} || skip "there is no tiktoken here, and no package index to install it from"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/gpt2"
cp "$data/gpt2-vocab.json" "$work/gpt2/vocab.json"
cp "$data/gpt2-merges.txt" "$work/gpt2/merges.txt"
"$python" "$root/tests/tiktoken_check.py" "$tally" "$work" "$root" "${megabytes:-4}"

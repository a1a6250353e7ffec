#!/bin/sh
# Does the page that `tally report` writes show what the plan and the log say, in a browser? tests/report_check.py asks it.
#
#   tests/report_check.sh [TALLY]          TALLY: the binary, by default build/tally
#
# Screenshots in both themes and as on a telephone are left beside the binary, in report/. Without Chromium and Python it exits with
# 77, which stands for "skipped".
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tally=$(realpath "${1:-$root/build/tally}")
"$root/tools/deps.sh" check report 2>/dev/null || {
    echo "report_check: SKIPPED: there is no Chromium, or no /usr/bin/python3; tools/deps.sh install report" >&2
    exit 77
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir -p "$(dirname "$tally")/report"
cd "$work"

# A run whose folder and settings would be markup if they were not escaped.
hostile="run <b>&\"' of two layers"
"$tally" data prepare "$root"/base/*.c --tokenizer char --out data >log
"$tally" train --data data --out-dir "$hostile" --n-layer 2 --n-head 2 --n-embd 32 --block-size 16 --batch-size 4 --threads 1 \
    --max-iters 60 --eval-interval 20 --eval-iters 2 --dropout 0.1 --recompute norm --quiet \
    --prompt '</script><script>window.bad = 1</script><!--' >log
"$tally" bench amp --model nano --n-layer 2 --batch-size 2 --threads 1 --max-iters 5 --json >"$hostile/bench-amp.json"
/usr/bin/python3 "$root/tests/report_check.py" "$tally" "$hostile" "$(dirname "$tally")/report"

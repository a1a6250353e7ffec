#!/usr/bin/env bash
# Does a model learn the stories?   tests/stories_train.sh BUILD/tally
#
# The recipe of tools/quickstart.sh, 700 steps of its 1200: the loss has to come within 0.25 nats per byte of the grammar's entropy, and not
# below it; and most of what the model then writes has to begin, to end and to be as long as a story.
set -u
[ -z "${QUICK:-}" ] || { echo "SKIPPED: a minute or more; make test runs it"; exit 77; }
tally=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_WAIT_POLICY=passive
"$tally" data stories --bytes 20MB --seed 1 --val-fraction 0.01 --out data >out 2>&1 &&
    "$tally" train --data data --out-dir run --model shakespeare-cpu --block-size 256 --batch-size 8 --whole-documents --learning-rate 2e-3 \
        --max-iters 700 --eval-interval 700 --eval-iters 0 --quiet >>out 2>&1 &&
    "$tally" sample --out-dir run --num-samples 20 >samples 2>>out || { tail out; exit 1; }
gap=$(sed -n '$s/.*"val_gap":\([-0-9.e]*\).*/\1/p' run/log.jsonl)
stories=$(grep -cE '^(There was a|One|Near the|It was a) .{120,250}[.]$' samples)
echo "$gap nats per byte above the floor; $stories of 20 samples look like stories"
awk -v gap="$gap" -v stories="$stories" 'BEGIN { exit !(gap > 0 && gap < 0.25 && stories >= 15) }'

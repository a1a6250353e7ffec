#!/bin/sh
# FP16 without loss scaling loses its gradients, and with it does not: one small model on 262,144 tokens a step, three times, in a
# minute or two.
#
#   tools/loss_scale.sh TALLY DATA OUT     the binary; tokens of tinyshakespeare by characters (make quickstart makes them); a new folder
set -eu
tally=$1 data=$2 out=$3
mkdir -p "$out"
cat >"$out/settings.json" <<'END'
{"model": "nano", "n_embd": 16, "n_head": 1, "batch_size": 256, "block_size": 64, "gradient_accumulation_steps": 16, "max_iters": 20,
 "learning_rate": 1e-2, "log_interval": 5, "grad_stats": 20, "eval_interval": 0, "checkpoint_interval": 0, "threads": 1}
END
for precision in 'fp16 --loss-scale 1' fp16 fp32; do
    run=$out/$(echo "$precision" | tr -d ' -')
    echo "\$ tally train --data $data --config $out/settings.json --precision $precision"
    "$tally" train --data "$data" --config "$out/settings.json" --out-dir "$run" --precision $precision >"$run.txt"
    sed -n '/^step /p; /^  gradients that/,/^  others/p' "$run.txt"
    echo
done

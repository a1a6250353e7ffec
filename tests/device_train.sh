#!/usr/bin/env bash
# tally train on a device: twenty steps as on the CPU; the same bits at every recompute level, in any order of a software GPU's
# warps and blocks, and after resuming; in settings that have every pair of a precision, a level, an accumulation and dropout or
# none.
#
#   tests/device_train.sh TALLY          the device: TALLY_TEST_DEVICE, cuda by default; see tests/device_find.sh
#                                        QUICK=1: the twenty steps only
set -u
. tests/device_find.sh
tally=$(realpath "$1") text=$(realpath README.md)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
failed=0

# train DIR FLAG...: a small model, whose sizes are multiples of nothing: 33 channels, 3 heads of 11, 35 positions.
train()
{
    "$tally" train --data data --out-dir "$@" --model nano --n-layer 2 --n-embd 33 --n-head 3 --batch-size 3 --block-size 35 \
        --eval-interval 0 --lr-decay-iters 20 --quiet >"$1.log" 2>&1 || { failed=1 && echo "FAILED: train $*" && tail -3 "$1.log"; }
}

# same A B: are all files of the two checkpoints the same, but for their settings?
same()
{
    for file in "$1"/*.safetensors; do
        cmp "$file" "$2/$(basename "$file")" || { failed=1 && echo "FAILED: $1 and $2 differ"; }
    done
}

# Loss and norm of each step.
numbers()
{
    sed -n 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"
}

"$tally" data prepare "$text" --out data >/dev/null || exit 1

train cpu --device cpu --dropout 0.1 --max-iters 20
train other --device "$device" --dropout 0.1 --max-iters 20
paste -d' ' <(numbers cpu) <(numbers other) | awk '
    { for (i = 1; i <= 2; i++) { error = $i / $(i + 2) - 1; if (error < 0) error = -error; if (error > worst) worst = error } }
    END { print NR " steps on the CPU and on the device: they differ by at most " worst + 0; exit NR != 20 || worst > 1e-4 }' || failed=1

[ -n "${QUICK:-}" ] && exit $failed

for setting in 'fp32 1 0' 'fp32 3 0.2' 'tf32 1 0.2' 'tf32 3 0' 'bf16 1 0' 'bf16 3 0.2' 'fp16 1 0.2' 'fp16 3 0'; do
    read -r precision accumulation dropout <<<"$setting"
    case " $precisions " in *" $precision "*) ;; *) continue ;; esac
    run="$precision-$accumulation-$dropout"
    flags="--device $device --precision $precision --gradient-accumulation-steps $accumulation --dropout $dropout"
    order=0
    for level in none norm attention block; do
        # shellcheck disable=SC2086 # the flags are words
        SOFTGPU_ORDER=$(echo forward reverse random random | cut -d' ' -f$((order + 1))) SOFTGPU_SEED=$order \
            train "$run-$level" $flags --recompute $level --max-iters 3
        order=$((order + 1))
        same "$run-none/step-3" "$run-$level/step-3"
    done
    # shellcheck disable=SC2086
    train "$run-resumed" $flags --max-iters 2
    "$tally" train --out-dir "$run-resumed" --resume --max-iters 3 --quiet >resumed.log || failed=1
    same "$run-none/step-3" "$run-resumed/step-3"
    echo "$run: the same bits at every level, and resumed"
done
exit $failed

#!/usr/bin/env bash
# The step that `tally train` gives a GPU, on the software GPU (tests/softgpu/README.md): copies on a stream of their own, CUDA
# graphs, results that are read a step late.
#
# - Whatever order the streams' operations run in, with graphs and with --no-graph, a run has the same bits: 30 random schedules of
#   three steps, 1000 with LONG=1, a few with QUICK=1.
# - A wait between the streams that is left out is noticed.
# - What a step decides for the next ones (a skip, the loss scale, the end) and what a checkpoint holds is as on the CPU, where
#   nothing is late.
#
#   tests/gpu_step.sh TALLY          TALLY: the binary, with softgpu/ beside it; without that it exits with 77, "skipped"
set -u
tally=$(realpath "$1") text=$(realpath README.md)
. tests/softgpu_find.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
export OMP_NUM_THREADS=1
failed=0
schedules=$([ -n "${LONG:-}" ] && echo 1000 || { [ -n "${QUICK:-}" ] && echo 4 || echo 30; })

fail()
{
    failed=1
    echo "FAILED: $*"
}

# train DIR FLAG...: exit code as tally's; what it printed is in DIR.log.
train()
{
    rm -rf "$1"
    "$tally" train --data data --out-dir "$@" --model nano --n-layer 1 --n-embd 16 --n-head 2 --batch-size 2 --block-size 8 \
        --eval-interval 0 --lr-decay-iters 9 --threads 1 >"$1.log" 2>&1
}

# same A B: do two checkpoints hold the same tensors?
same()
{
    cmp -s "$1/model.safetensors" "$2/model.safetensors" && cmp -s "$1/optimizer.safetensors" "$2/optimizer.safetensors"
}

# What each step did, but for the time that it took and the last digits.
numbers()
{
    sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]\{6\}\)[^,]*.*"lr":\([^,]*\),.*/\1 \2 \3/p' "$1/log.jsonl"
    grep -o '"loss_scale":[0-9.]*\|"skipped":true' "$1/log.jsonl"
}

"$tally" data prepare "$text" --out data >/dev/null || exit 1
three='--device cuda --max-iters 3 --gradient-accumulation-steps 2 --dropout 0.1'

# shellcheck disable=SC2086 # the flags are words
train plain $three --no-graph || { fail "train $three --no-graph"; tail -3 plain.log; }
cp -r plain/step-3 want
for ((seed = 1; seed <= schedules; seed++)); do
    graph=$([ $((seed % 2)) = 0 ] && echo --no-graph)
    # shellcheck disable=SC2086
    SOFTGPU_SEED=$seed train run $three $graph && same run/step-3 want || fail "schedule $seed $graph"
done
echo "$schedules schedules of three steps, with and without graphs: the same bits"

# shellcheck disable=SC2086
SOFTGPU_RACE=1 train run $three && same run/step-3 want || fail 'a race between streams'
# shellcheck disable=SC2086
SOFTGPU_RACE=1 SOFTGPU_DROP_WAITS=1 train run $three && fail 'no wait at all, and no race was found'
noticed=0
for wait in 1 2 3 4 5 6 7 8 9 10 11 12; do # two for each of six micro-batches
    # shellcheck disable=SC2086
    SOFTGPU_RACE=1 SOFTGPU_DROP_WAIT=$wait train run $three || noticed=$((noticed + 1))
done
# The copies after the last micro-batch's wait for nothing; those for the second one go where nobody has read yet.
[ $noticed = 10 ] || fail "of 12 waits, left out one at a time, $noticed were noticed, not 10"
echo "of 12 waits, left out one at a time, $noticed are noticed; the other 2 have nothing to wait for"

# Left to choose, tally takes the GPU when the plan fits there, and says which it took.
train auto --max-iters 1 && grep -q '^On the GPU: Software A100, 108 SMs, sm_80, steps as CUDA graphs$' auto.log ||
    fail "$(grep '^On' auto.log)"
SOFTGPU_MEMORY_MIB=401 train auto --max-iters 1 &&
    grep -q '^On the CPU: the plan needs .* of the GPU (Software A100.*), which has [0-9.]* MiB free$' auto.log ||
    fail "$(grep '^On' auto.log) $(tail -1 auto.log)"
SOFTGPU_MEMORY_MIB=401 train auto --max-iters 1 --device cuda && fail 'the GPU took more than it has'

[ -n "${QUICK:-}" ] && exit $failed

# Every step's gradient overflows: the guard stops both after the same one; and so does the end of a run.
for device in cpu cuda; do
    train skip-$device --device $device --precision fp16 --loss-scale 1e9 --max-skips 2 --max-iters 9 && fail "$device went on"
    grep -q 'step 3: the gradient has not been finite for 3 steps in a row; the first tensor that is not finite is' \
        skip-$device.log || fail "$device: $(tail -1 skip-$device.log)"
    # From 65536 the scale of this model goes nowhere; from 2^24 it is halved on the way, which the device does by itself.
    train scale-$device --device $device --precision fp16 --max-iters 1 || fail "fp16 on $device"
    sed -i 's/"loss_scale": *65536[.0]*/"loss_scale": 16777216.0/' scale-$device/step-1/trainer.json
    "$tally" train --out-dir scale-$device --resume --max-iters 9 >scale.log 2>&1 || fail "resumed: $(tail -1 scale.log)"
    grep -q '"loss_scale":8388608' scale-$device/log.jsonl || fail "$device: the scale did not move: $(numbers scale-$device)"
    train end-$device --device $device --max-iters 7 --checkpoint-interval 3 || fail "$device: $(tail -1 end-$device.log)"
done
for run in skip scale end; do
    diff <(numbers $run-cpu) <(numbers $run-cuda) || fail "$run: other steps on cuda than on cpu"
done
ls end-cpu end-cuda | sort | uniq -c | grep -q '  2 step-3' || fail 'checkpoints'

# A token outside the vocabulary is met by the step ahead, within an epoch; it is told after the steps before it.
head -c 1300 "$text" >short.txt && "$tally" data prepare short.txt --out bad >/dev/null &&
    printf '\xff\xff' | dd of=bad/train.bin bs=1 seek=2000 conv=notrunc status=none
for device in cpu cuda; do
    train bad-$device --data bad --device $device --max-iters 80 && fail "$device took a token of no kind"
done
[ "$(numbers bad-cpu | wc -l)" -gt 0 ] || fail "no step before the token: $(tail -1 bad-cpu.log)"
diff <(tail -1 bad-cpu.log) <(tail -1 bad-cuda.log) || fail 'other words'
diff <(numbers bad-cpu) <(numbers bad-cuda) || fail 'other steps before the token'

# Stopped and resumed wherever, the checkpoint is that of a run that went through.
for precision in fp32 fp16; do
    train whole --device cuda --precision $precision --max-iters 6 --dropout 0.1 || fail "$precision"
    train parts --device cuda --precision $precision --max-iters 2 --dropout 0.1 || fail "$precision"
    for end in 3 6; do
        "$tally" train --out-dir parts --resume --max-iters $end >parts.log 2>&1 || fail "resumed: $(tail -1 parts.log)"
    done
    same whole/step-6 parts/step-6 || fail "$precision: other bits after resuming"
done
exit $failed

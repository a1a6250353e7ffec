#!/usr/bin/env bash
# What `tally train` says of a GPU's memory, power and clocks, on the software GPU with a faked NVML (tests/softgpu/nvml): exact
# numbers, the same remainder from the warm-up to the end, and a run that goes on where NVML fails in part or is absent.
#
#   tests/gpu_ledger.sh TALLY          TALLY: the binary, with softgpu/ beside it; without that it exits with 77, "skipped"
set -u
tally=$(realpath "$1") text=$(realpath README.md)
. tests/softgpu_find.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
export LD_LIBRARY_PATH=$softgpu:$softgpu/nvml OMP_NUM_THREADS=1
failed=0

# train FLAG...: six steps of 16 tokens; what is printed is in said, and the log in run/log.jsonl.
train()
{
    rm -rf run
    "$tally" train --data data --out-dir run --device cuda --model nano --n-layer 1 --n-embd 16 --n-head 2 --batch-size 2 \
        --block-size 8 --eval-interval 0 --max-iters 6 --log-interval 2 "$@" >said 2>&1 ||
        { failed=1 && echo "FAILED: train $*" && tail -1 said; }
}

# values KEY: that of each line of the log that has one.
values()
{
    grep -o "\"$1\":[^,}]*" run/log.jsonl | cut -d: -f2 | tr '\n' ' '
}

# has KEY VALUE...: are these its values?
has()
{
    local key=$1
    shift
    [ "$(values "$key")" = "$* " ] || { failed=1 && echo "FAILED: $key: $(values "$key"), not $*, with FAKE_NVML=$FAKE_NVML"; }
}

# says LINE
says()
{
    grep -q -- "$1" said || { failed=1 && echo "FAILED: no line '$1', with FAKE_NVML=$FAKE_NVML" && cat said; }
}

"$tally" data prepare "$text" --out data >/dev/null || exit 1

# Two joules from look to look: after step 1, then every second one.
export FAKE_NVML=own_less=5000000,millijoules=2000,throttle=4
train
has remainder_bytes 5000000.0 5000000.0 5000000.0 5000000.0
has tokens_per_joule null 8.0 16.0 16.0
has watts 250.0 250.0 250.0 250.0
says '^  remainder  *4.77 MiB  *0.01 %$'
says '^Memory of the GPU at the end: remainder 4.77 MiB$'
says '^  GPU: 1410 MHz  250 W  50 C  97 % busy  16 tokens/J  held back by: power cap$'
train --nvml-interval 3 --no-graph
has remainder_bytes 5000000.0 5000000.0 5000000.0
has tokens_per_joule null 16.0 24.0

# A GB of another program, which the software GPU's free memory does not know: it is missing from the remainder.
FAKE_NVML=own_less=5000000,other_bytes=1000000000
train
has remainder_bytes -995000000.0 -995000000.0 -995000000.0 -995000000.0
has other_bytes 1000000000.0 1000000000.0 1000000000.0 1000000000.0

# Without an energy counter the power counts; without that, nothing does.
FAKE_NVML=millijoules=none,milliwatts=1000
train
values tokens_per_joule | grep -Eq '^null [0-9.]+ [0-9.]+ [0-9.]+ $' || { failed=1 && echo "FAILED: $(values tokens_per_joule)"; }
FAKE_NVML=millijoules=none,milliwatts=none,sm=none
train
has tokens_per_joule null null null null
has sm_mhz null null null null

# Functions that fail, a library that does not start, none at all: less is said, and the run has the same numbers.
losses=$(values loss)
for FAKE_NVML in fail=nvmlDeviceGetComputeRunningProcesses_v3 fail=nvmlDeviceGetUtilizationRates init=9; do
    train
    [ "$(values loss)" = "$losses" ] || { failed=1 && echo "FAILED: other losses with FAKE_NVML=$FAKE_NVML"; }
done
says '^Clocks, power and temperature of the GPU are not measured: NVML does not start: Driver Not Loaded$'
says '^  context, and all of other programs '
LD_LIBRARY_PATH=$softgpu
train
says '^Clocks, power and temperature of the GPU are not measured: .*libnvidia-ml'
has watts null null null null
[ "$(values remainder_bytes | tr ' ' '\n' | sort -u | grep -c .)" = 1 ] || { failed=1 && echo 'FAILED: the remainder changes'; }
[ "$(values loss)" = "$losses" ] || { failed=1 && echo 'FAILED: other losses without NVML'; }
exit $failed

#!/usr/bin/env bash
# What is done on a machine with a GPU, in stages of at most 8 minutes; what is finished is not done again, so that a stage can be
# run until it says that it is complete.
#
#   tests/gpu.sh OUT STAGE [BUILD]
#     build+golden   builds for this GPU; every device's tests and the golden cases, on it
#     sanitize       compute-sanitizer: memcheck, racecheck, initcheck of the ops' tests
#     bench          tally bench: each op beside its bound, step, MFU, memory; gpt2 B 4 to 64, gpt2-xl; precisions; recompute
#     peer           the same models in PyTorch, in turns (tools/peers/compare_gpu.py); BENCH_PYTHON=python with torch
#     profile        ncu of the kernels of one step
#
# OUT/STAGE gets a JSON or CSV file and a log for each piece; OUT/STAGE.md is the table; OUT.tar.gz has it all. What the machine
# refuses is skipped, and said. BUILD: a ready build, with shared libraries that the machine lacks in BUILD/lib; nothing is then
# compiled. Exit code 0: complete; 1: a piece failed; 75: the time is up, run it again.
#
#   tests/gpu.sh build/tally         all stages in small on the software GPU, to see that they work
# shellcheck disable=SC2317 # stages are called by name
set -u

# ---- Pieces ------------------------------------------------------------------------------------------------------------

# piece NAME COMMAND...: runs it, its output in NAME.log, once: NAME.done says that it ended well, NAME.skipped that the machine
# refused (exit code 77) and why, NAME.failed what went wrong.
piece()
{
    local at=$out/$stage/$1 code
    [ -e "$at.done" ] || [ -e "$at.skipped" ] && return
    if [ $SECONDS -gt "$seconds" ]; then
        echo "The time is up: run this stage again for the rest."
        finish 75
    fi
    rm -f "$at.failed"
    ("${@:2}") >"$at.log" 2>&1 </dev/null
    code=$?
    case $code in
    0) touch "$at.done" && echo "$1: done" ;;
    77) tail -n 1 "$at.log" >"$at.skipped" && echo "$1: SKIPPED: $(cat "$at.skipped")" ;;
    *) tail -n 5 "$at.log" >"$at.failed" && echo "$1: FAILED with code $code: $(tail -n 1 "$at.log")" ;;
    esac
}

# json NAME COMMAND...: the JSON that a command prints, in NAME.json. What does not fit into the GPU is refused by tally, with 2.
json()
{
    "${@:2}" >"$out/$stage/$1.json.tmp"
    local code=$?
    [ "$code" = 2 ] && exit 77
    [ "$code" = 0 ] && mv "$out/$stage/$1.json.tmp" "$out/$stage/$1.json"
}

# finish CODE: the table and the archive.
finish()
{
    python3 tests/gpu_table.py "$out/$stage" >"$out/$stage.md" && cat "$out/$stage.md"
    tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
    local failed
    failed=$(find "$out/$stage" -name '*.failed' | wc -l)
    [ "$failed" = 0 ] || echo "$failed pieces failed: see $out/$stage/*.log"
    [ "$1" = 0 ] && [ "$failed" != 0 ] && exit 1
    exit "$1"
}

# ---- Stages ------------------------------------------------------------------------------------------------------------

build_here()
{
    local arch
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    make -j"$(nproc)" CUDA_ARCHS="$arch" tests
}

build_golden()
{
    piece machine sh -c 'nvidia-smi -q; nvcc --version; uname -a; cat /etc/os-release' # for the record: code 0 whatever is missing
    [ -n "$given" ] || piece build build_here
    piece doctor json doctor "$build/tally" doctor --json
    piece device tests/run.sh device "$build" --device cuda
}

# sanitizer TOOL PROGRAM...: a machine that compute-sanitizer does not run on says so in these words.
sanitizer()
{
    command -v compute-sanitizer >/dev/null || { echo 'there is no compute-sanitizer' && exit 77; }
    local log code
    log=$(mktemp)
    TALLY_TEST_DEVICE=cuda compute-sanitizer --tool "$1" --error-exitcode 9 "${@:2}" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    grep -q 'Device not supported' "$log" && echo "$1: device not supported here" && code=77
    rm -f "$log"
    return "$code"
}

sanitize()
{
    for tool in memcheck racecheck initcheck; do
        for test in test_ops test_ops_update test_precision_ops test_attention_types; do
            piece "$tool-$test" sanitizer "$tool" "$build/unit/$test"
        done
    done
}

# bench_one NAME MODEL B PRECISION RECOMPUTE
bench_one()
{
    # shellcheck disable=SC2086 # the sizes are words
    json "$1" "$build/tally" bench --json --device cuda --model "$2" --batch-size "$3" --precision "$4" --recompute "$5" \
        --dropout 0 $sizes
}

bench()
{
    for precision in bf16 tf32 fp16 fp32; do
        for level in none block; do
            for row in $rows; do
                piece "${row/:/-B}-$precision-$level" bench_one "${row/:/-B}-$precision-$level" "${row%:*}" "${row#*:}" "$precision" "$level"
            done
        done
    done
}

peer()
{
    "${BENCH_PYTHON:-python3}" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
        { echo "SKIPPED: ${BENCH_PYTHON:-python3} has no PyTorch with CUDA; set BENCH_PYTHON" | tee "$out/$stage/peer.skipped" && return; }
    tools/peers/compare_gpu.py "$out/$stage" --tally "$build/tally" --python "${BENCH_PYTHON:-python3}" --seconds "$seconds"
    local code=$?
    [ "$code" = 0 ] || finish "$code"
}

# Counters of every kernel of two steps, without touching the clocks.
ncu_step()
{
    command -v ncu >/dev/null || { echo 'there is no ncu' && exit 77; }
    local metrics=gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
    metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread
    metrics+=,l1tex__data_bank_conflicts_pipe_lsu.sum,smsp__inst_executed.sum
    ncu --clock-control none --csv --page raw --metrics "$metrics" --log-file "$out/$stage/$1.csv" \
        "$build/tally" bench --device cuda --model gpt2 --batch-size 4 --precision "$1" --dropout 0 --no-graph --max-iters 1
    grep -q 'LibraryNotLoaded\|ERR_NVGPUCTRPERM' "$out/$stage/$1.csv" && echo 'ncu may not read the counters here' && exit 77
    grep -q kernel "$out/$stage/$1.csv"
}

profile()
{
    for precision in bf16 fp32; do
        piece "$precision" ncu_step "$precision"
    done
}

# ---- ---------------------------------------------------------------------------------------------------------------------

cd "$(dirname "$0")/.." || exit 1
rows='gpt2:16 gpt2:64 gpt2-xl:4 gpt2:4 gpt2:8 gpt2:32 gpt2-xl:16' sizes='--max-iters 10'
seconds=${GPU_STAGE_SECONDS:-400}
PATH=$PATH:/usr/local/cuda/bin
if [ $# = 1 ] && [ -x "$1" ] && [ ! -d "$1" ]; then
    . tests/device_find.sh
    [ -z "${QUICK:-}" ] || { echo 'SKIPPED: minutes; make test runs it' && exit 77; }
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    failed=0
    for stage in build+golden sanitize bench peer profile; do
        QUICK=1 GPU_SMALL=1 "$0" "$folder/out" $stage "$(dirname "$(realpath "$1")")" || failed=1
    done
    [ "$(tar -tzf "$folder/out.tar.gz" | grep -c 'bench/.*json$')" = 16 ] || { echo 'FAILED: the archive has not 16 results' && failed=1; }
    exit $failed
fi
if [ -n "${GPU_SMALL:-}" ]; then # what the software GPU does in seconds
    rows='nano:1 nano:2' sizes='--n-layer 1 --n-embd 32 --n-head 2 --block-size 16 --max-iters 1'
fi
[ $# -ge 2 ] || { sed -n '2,/^set/{/^set/d;s/^#//;s/^ //;p}' "$0" >&2 && exit 2; }
out=$(realpath -m "$1") stage=$2 given=${3:-} build=$(realpath -m "${3:-build}")
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out/$stage"
case $stage in
build+golden) build_golden ;;
sanitize | bench | peer | profile) "$stage" ;;
*) echo "tests/gpu.sh: no stage '$stage'; there are build+golden, sanitize, bench, peer, profile" >&2 && exit 2 ;;
esac
finish 0

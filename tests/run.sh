#!/usr/bin/env bash
# Runs the tests and counts them.
#
#   tests/run.sh LEVEL BUILD      LEVEL: check, test or test-long; BUILD: the folder that make has filled
#   tests/run.sh device BUILD --device NAME      what every device must pass, on one of them: cpu, cuda or cuda:N. `build/tests
#                                                --device NAME` does this. Without a GPU, cuda is the one made of software
#
# check      every unit test program BUILD/unit/test_*, those of the software GPU and of ops on it, and the scripts tests/*.sh
#            with QUICK=1
# test       the same without QUICK; the unit tests again with the sanitizers; each fuzzer for FUZZ_SECONDS (60)
# test-long  the same with LONG=1 and an hour of each fuzzer
#
# A unit test counts by itself, as cmocka says; a script and a fuzzer count as one. A script that exits with 77 was skipped. The
# last line is "N passed, N failed" (", N skipped" when there are any). Exit code 1 when one failed, or a golden test was skipped.
set -u
level=$1 build=$2
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
build=$(realpath "$build")
export TALLY=$build/tally TALLY_BUILD=$build CMOCKA_MESSAGE_OUTPUT=STDOUT
case $level in
check) export QUICK=1 limit=240 ;;
test) limit=900 ;;
test-long) export LONG=1 limit=0 FUZZ_SECONDS=${FUZZ_SECONDS:-3600} ;;
device)
    limit=0 device=${4:-}
    [ "${3:-}${device:+ NAME}" = '--device NAME' ] || { echo 'usage: build/tests --device cpu|cuda|cuda:N' >&2 && exit 2; }
    ;;
*) echo "tests/run.sh: no level '$level'" >&2 && exit 2 ;;
esac
# The tests of ops and of the model are those of any device: TALLY_TEST_DEVICE names it.
ops='test_ops test_ops_golden test_ops_update test_precision_ops test_attention_types' models='test_model test_recompute test_precision'

# count NAME PASSED FAILED SKIPPED SECONDS: adds them up, and shows what went wrong or was left out.
count()
{
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    printf '%-44s %4d passed %4d failed %4d skipped %5d s\n' "$@"
    if [ "$3" -gt 0 ]; then
        tail -n 100 "$log" | sed 's/^/    /'
    elif [ "$4" -gt 0 ]; then
        grep 'SKIPPED: ' "$log" | sed 's/^/    /' # each says why
    fi
}

# sum WORD: of the N in cmocka's lines "[  WORD  ] N test(s)".
sum()
{
    sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}

# program PATH NAME [VARIABLE=VALUE...]: a cmocka program, with these in its environment. One that crashes, hangs or runs nothing has failed one test at least.
program()
{
    local begin=$SECONDS code good bad out
    timeout -k 10 "$limit" env "${@:3}" "$1" >"$log" 2>&1 </dev/null
    code=$?
    [ $code = 124 ] && echo "stopped after $limit seconds" >>"$log"
    good=$(sum PASSED) bad=$(sum FAILED) out=$(sum SKIPPED)
    if [ "$bad" = 0 ] && { [ $code != 0 ] || [ $((good + out)) = 0 ]; }; then
        echo "exit code $code" >>"$log"
        bad=1
    fi
    case $2 in
    *golden*) bad=$((bad + out)) out=0 ;; # a golden test must not be skipped
    esac
    count "$2" "$good" "$bad" "$out" $((SECONDS - begin))
}

# softgpu PATH NAME [VARIABLE=VALUE...]: a cmocka program, on the software GPU (tests/softgpu/README.md), which is built where nvcc
# is. OpenMP's threads must not spin between products: the kernels' threads need the cores.
softgpu()
{
    if [ -e "$build/softgpu/libcudart.so.13" ]; then
        program "$@" "LD_LIBRARY_PATH=$build/softgpu" OMP_WAIT_POLICY=passive
    else
        echo "SKIPPED: there is no software GPU here; it needs nvcc 13" >"$log"
        count "$2" 0 0 1 0
    fi
}

# script PATH: it gets the binary as its argument.
script()
{
    local begin=$SECONDS code
    timeout -k 10 "$limit" "$1" "$TALLY" >"$log" 2>&1 </dev/null
    code=$?
    case $code in
    0) count "$1" 1 0 0 $((SECONDS - begin)) ;;
    77) count "$1" 0 0 1 $((SECONDS - begin)) ;;
    *)
        echo "exit code $code" >>"$log"
        count "$1" 0 1 0 $((SECONDS - begin))
        ;;
    esac
}

# fuzz NAME: what it finds stays in BUILD/fuzz: inputs that reach new code in new-NAME, a crash in crash-*.
fuzz()
{
    local begin=$SECONDS new=$build/fuzz/new-$1
    if [ ! -x "$build/fuzz/fuzz_$1" ]; then
        echo "SKIPPED: fuzz_$1 is not built; it needs clang (make deps)" >"$log"
        count "fuzz_$1" 0 0 1 0
        return
    fi
    mkdir -p "$new"
    if "$build/fuzz/fuzz_$1" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=25 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$build/fuzz/" "$new" "tests/fuzz/corpus-$1" >"$log" 2>&1 </dev/null; then
        count "fuzz_$1, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs" 1 0 0 $((SECONDS - begin))
    else
        count "fuzz_$1" 0 1 0 $((SECONDS - begin))
    fi
}

# finish: the last line, and the exit code.
finish()
{
    echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
    [ $failed = 0 ]
    exit
}

if [ "$level" = device ]; then
    export TALLY_TEST_DEVICE=$device
    . tests/device_find.sh
    [ -z "${LD_LIBRARY_PATH:-}" ] || echo 'There is no GPU here: these tests run on the one made of software (tests/softgpu).'
    for name in $ops $models; do
        program "$build/unit/$name" "$name, $device"
    done
    script tests/device_golden.sh
    script tests/device_train.sh
    finish
fi

for test in tests/test_*.c; do
    name=$(basename "$test" .c)
    program "$build/unit/$name" "$name"
done
for test in tests/softgpu/test_*.c; do
    name=$(basename "$test" .c)
    softgpu "$build/softgpu/tests/$name" "softgpu: $name"
done
# On the software GPU: with every check, and ops with warps in other orders.
for name in $ops $models; do
    if [ "$level" = check ]; then
        softgpu "$build/unit/$name" "$name, cuda" TALLY_TEST_DEVICE=cuda
        continue
    fi
    softgpu "$build/unit/$name" "$name, cuda, checked" TALLY_TEST_DEVICE=cuda SOFTGPU_CHECK=1 SOFTGPU_RACE=1
    case " $models " in *" $name "*) continue ;; esac
    for order in reverse random; do
        softgpu "$build/unit/$name" "$name, cuda, $order" TALLY_TEST_DEVICE=cuda "SOFTGPU_ORDER=$order" SOFTGPU_SEED=1
    done
done
softgpu "$build/unit/test_ops" "test_ops, cuda, plain products" TALLY_TEST_DEVICE=cuda TALLY_GEMM=plain
softgpu "$build/unit/test_profile" "test_profile, cuda" TALLY_TEST_DEVICE=cuda SOFTGPU_SMS=8
for test in tests/*.sh; do
    case $test in tests/run.sh | tests/*_find.sh) ;; *) script "$test" ;; esac
done
if [ "$level" != check ]; then
    sanitized=$build/sanitize-address-undefined
    export SANITIZED=1 TALLY=$sanitized/tally
    for test in tests/test_*.c; do
        name=$(basename "$test" .c)
        program "$sanitized/unit/$name" "$name, sanitized"
    done
    for test in tests/fuzz/fuzz_*.c; do
        name=$(basename "$test" .c)
        fuzz "${name#fuzz_}"
    done
fi
finish

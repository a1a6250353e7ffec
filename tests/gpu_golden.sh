#!/usr/bin/env bash
# The golden cases with --device cuda in every precision, on the software GPU (tests/softgpu/README.md), within the limits that hold
# for every device: with QUICK=1 the first one, else g01 to g05 with every check of memory and of order.
#
#   tests/gpu_golden.sh TALLY          TALLY: the binary, with softgpu/ beside it; without that it exits with 77, "skipped"
set -u
gpu=$(dirname "$1")/softgpu
if [ ! -e "$gpu/libcudart.so.13" ]; then
    echo 'SKIPPED: there is no software GPU here; it needs nvcc 13'
    exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LD_LIBRARY_PATH=$gpu OMP_WAIT_POLICY=passive
cases=g01
if [ -z "${QUICK:-}" ]; then
    cases='g01 g02 g03 g04 g05'
    export SOFTGPU_CHECK=1 SOFTGPU_RACE=1
fi
failed=0
for case in $cases; do
    for precision in fp32 tf32 bf16 fp16; do
        echo "== $case, $precision"
        "$1" golden "tests/golden/$case" --out "$out/$case" --device cuda --precision $precision || failed=1
    done
done
# Of the products, some add a bias, some multiply by GELU's derivative, some sum a bias's gradient: cublasLtEpilogue_t.
SOFTGPU_TRACE=1 "$1" golden tests/golden/g01 --out "$out/traced" --device cuda --precision bf16 >"$out/trace" 2>&1 || failed=1
for epilogue in 4 192 256; do
    grep -q "epilogue $epilogue," "$out/trace" || { failed=1 && echo "FAILED: no product with epilogue $epilogue"; }
done
exit $failed

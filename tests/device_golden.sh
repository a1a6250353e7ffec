#!/usr/bin/env bash
# The golden cases in every precision that a device has, within the limits that hold for every device: with QUICK=1 the first one,
# else g01 to g05, on the software GPU (tests/softgpu/README.md) with every check of memory and of order.
#
#   tests/device_golden.sh TALLY          the device: TALLY_TEST_DEVICE, cuda by default; see tests/device_find.sh
set -u
. tests/device_find.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cases=g01
if [ -z "${QUICK:-}" ]; then
    cases='g01 g02 g03 g04 g05'
    export SOFTGPU_CHECK=1 SOFTGPU_RACE=1
fi
failed=0
for case in $cases; do
    for precision in $precisions; do
        echo "== $case, $precision"
        "$1" golden "tests/golden/$case" --out "$out/$case" --device "$device" --precision "$precision" || failed=1
    done
done
# On the software GPU, which says so: some products add a bias, some multiply by GELU's derivative, some sum a bias's gradient.
if [ "$device" != cpu ] && [ -n "${LD_LIBRARY_PATH:-}" ]; then
    SOFTGPU_TRACE=1 "$1" golden tests/golden/g01 --out "$out/traced" --device "$device" --precision bf16 >"$out/trace" 2>&1 || failed=1
    for epilogue in 4 192 256; do # of cublasLtEpilogue_t
        grep -q "epilogue $epilogue," "$out/trace" || { failed=1 && echo "FAILED: no product with epilogue $epilogue"; }
    done
fi
exit $failed

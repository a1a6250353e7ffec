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
exit $failed

#!/usr/bin/env bash
# Kernels of every architecture that tally is released for: they compile, keep within their registers (tests/registers.sh), and the
# path of the oldest, sm_75, which has neither cp.async nor BF16 in its tensor cores, is run on a software T4.
#
#   LONG=1 tests/archs.sh BUILD/tally          builds in BUILD/archs
build=$(realpath "$(dirname "$1")")
[ -n "${LONG:-}" ] || { echo "SKIPPED: half an hour of compiling; make test-long does it"; exit 77; }
. tests/softgpu_find.sh
failed=0 programs='test_ops test_ops_golden test_ops_update test_precision_ops test_attention_types test_model test_precision'
# shellcheck disable=SC2086,SC2046 # lists of words
make -s BUILD="$build/archs" CUDA_ARCHS=all CUDA_PTX=75 all $(printf "$build/archs/unit/%s " $programs) || exit 1
tests/registers.sh "$build/archs/tally" || failed=1
export TALLY_TEST_DEVICE=cuda SOFTGPU_CARD=t4 SOFTGPU_CHECK=1
for program in $programs; do
    echo "== $program, sm_75"
    "$build/archs/unit/$program" || failed=1
done
exit $failed

#!/usr/bin/env bash
# --tune on the software GPU (tests/softgpu/README.md), whose algorithms sum in different orders: the choice is kept with the
# checkpoint, used on resuming, to the same bits, refused when it is broken, and left when it is of another card.
#
#   tests/tune.sh TALLY          TALLY: the binary, with softgpu/ beside it; without that it exits with 77, "skipped"
set -u
tally=$(realpath "$1") text=$(realpath README.md)
. tests/softgpu_find.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
failed=0
fail() { failed=1 && echo "FAILED: $*"; }

# resume NAME [SED]: a copy of the run at its first step, gemm-tune.json edited, goes on to the second; its output is in NAME.log.
resume()
{
    mkdir "$1" && cp -r tuned/step-1 "$1" && sed -i "${2:-}" "$1/step-1/gemm-tune.json"
    "$tally" train --out-dir "$1" --resume --max-iters 2 >"$1.log" 2>&1
}
# says NAME CODE TEXT: did that run end with the code and say so?
says()
{
    [ "$code" = "$2" ] || fail "$1: exit code $code instead of $2: $(tail -1 "$1.log")"
    grep -q "$3" "$1.log" || fail "$1 does not say '$3': $(tail -1 "$1.log")"
}
same() { cmp -s "tuned/step-2/model.safetensors" "$1/step-2/model.safetensors"; }

"$tally" data prepare "$text" --out data >/dev/null || exit 1
flags='--data data --model nano --n-layer 1 --n-embd 64 --n-head 2 --batch-size 2 --block-size 128 --max-iters 2 --checkpoint-interval 1'
# shellcheck disable=SC2086 # words
"$tally" train --device cuda --out-dir tuned --tune $flags >tuned.log 2>&1 || fail "$(tail -1 tuned.log)"
code=0 && says tuned 0 'Tuned the matrix products'
cmp tuned/step-1/gemm-tune.json tuned/step-2/gemm-tune.json || fail 'the choices have changed'
products=$(grep -c '"algorithm"' tuned/step-2/gemm-tune.json)
[ "$products" -ge 12 ] || fail "$products products"
[ "$(grep -c '"epilogue": 192' tuned/step-2/gemm-tune.json)" = 1 ] || fail 'no choice for the derivative of GELU'

resume again || fail "$(tail -1 again.log)"
same again || fail 'a resumed run has other bits'
cmp -s tuned/step-2/gemm-tune.json again/step-2/gemm-tune.json || fail 'a resumed run has other choices'
# In the software GPU's algorithm the third 32-bit number says into how many parts the sum is cut.
resume parts 's/\("algorithm": "[0-9a-f]\{16\}\)0[0-9]/\107/' || fail "$(tail -1 parts.log)"
same parts && fail 'the choices are not used'
resume digits 's/"algorithm": "../"algorithm": "zz/'
code=$? && says digits 1 'gemm-tune.json: products: number 1: algorithm: has to be 128 hexadecimal digits'
resume field 's/"rows_a"/"rows_x"/'
code=$? && says field 1 'gemm-tune.json: products: number 1: rows_a: is missing'
resume strange 's/"algorithm": "../"algorithm": "00/'
code=$? && says strange 1 'cuBLASLt: the algorithm that gemm-tune.json has for it'
SOFTGPU_CARD=h100 resume card
code=$? && says card 0 'gemm-tune.json was made on Software A100.* this is Software H100'
# shellcheck disable=SC2086
"$tally" train --device cpu --out-dir cpu --tune $flags >cpu.log 2>&1
code=$? && says cpu 2 'tune: this device, cpu, has one way to multiply matrices'
echo "$products kinds of products tuned"
exit $failed

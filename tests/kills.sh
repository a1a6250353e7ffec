#!/usr/bin/env bash
# kill -9 at moments drawn at random, again and again.   tests/kills.sh BUILD/tally
#
# A run that saves at each step, keeps one checkpoint and the best, and validates often, is killed and resumed until it is at its end, with
# the data prepared again over and over by a process that is killed as well. Each time a whole checkpoint and a whole data set have to be
# there, and the end has the bits of a run that nobody has killed. KILLS: 25 with QUICK=1, 80, or 400 with LONG=1.
set -u
tally=$(realpath "$1")
kills=$([ -n "${QUICK:-}" ] && echo 25 || { [ -n "${LONG:-}" ] && echo 400 || echo 80; })
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'kill -KILL $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
RANDOM=${SEED:-1}

fail()
{
    echo "FAILED after $done_kills kills: $*"
    tail -n 5 out err 2>/dev/null | sed 's/^/    /'
    exit 1
}
done_kills=0

# moment LONGEST: waits for up to so many milliseconds.
moment()
{
    sleep "$(printf '0.%03d' $((RANDOM % $1)))"
}

yes 'the cat sat on a mat and the dog ran far we see' | head -n 400 >text
"$tally" data prepare text --tokenizer byte --out data >out 2>err || fail "prepare"
set -- --model nano --n-layer 1 --n-embd 16 --n-head 2 --threads 1 --device cpu --data data --block-size 16 --batch-size 2 --quiet --dropout 0.1 \
    --checkpoint-interval 1 --keep 1 --eval-interval 3 --eval-iters 1 --lr-decay-iters 400 --warmup-iters 10

# The data, prepared now with the one separator, now with the other: a data set is one of the two, or is said to be unfinished.
for i in 0 1; do
    "$tally" data prepare text --tokenizer byte --separator "$([ $i = 0 ] && echo '\n' || echo 'a')" --shard-tokens 1000 --out "set-$i" >out 2>err || fail "prepare"
    "$tally" data info "set-$i" >"info-$i"
done
for ((i = 0; i < kills; i++)); do
    "$tally" data prepare text --tokenizer byte --separator "$([ $((i % 2)) = 0 ] && echo '\n' || echo 'a')" --shard-tokens 1000 --out set >out 2>err &
    moment 30
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    done_kills=$((done_kills + 1))
    if "$tally" data info set >info 2>err; then
        cmp -s info info-0 || cmp -s info info-1 || fail "the data set is neither the one nor the other"
    else
        grep -q 'is at work there or was interrupted\|no such file\|no train.bin' err || fail "the data set"
    fi
done
"$tally" data prepare text --tokenizer byte --separator '\n' --shard-tokens 1000 --out set >out 2>err || fail "the last prepare"
"$tally" data info set | cmp -s - info-0 || fail "the last data set"
ls -A set | grep -q 'tmp\|unfinished' && fail "left behind: $(ls -A set)"

# The run: killed in its setting up, one time in four, or in steps, saves, evaluations, and when checkpoints go.
"$tally" train "$@" --out-dir killed --max-iters 1000000 >out 2>err &
until compgen -G 'killed/step-*[0-9]' >/dev/null; do kill -0 $! || fail "the first step"; done
kill -KILL $!
wait $! 2>/dev/null
last=1 resumed=0
for ((i = 0; i < kills; i++)); do
    "$tally" train --resume --out-dir killed >out 2>err &
    if [ $((i % 4)) = 0 ]; then
        moment 500
    else
        until grep -q 'Resumed from' out; do kill -0 $! || fail "resume"; done
        moment 50
    fi
    kill -KILL $! || fail "resume"
    wait $! 2>/dev/null
    done_kills=$((done_kills + 1))
    [ -s err ] && fail "a resumed run should say nothing of damage"
    at=$(cd killed && ls -d step-*[0-9] | sed 's/step-//' | sort -n | tail -n 1)
    [ "$at" -ge "$last" ] || fail "step $last is lost: $at is the latest"
    [ "$at" -gt "$last" ] && resumed=$((resumed + 1))
    last=$at
    [ "$(ls -d killed/step-*[0-9] | wc -l)" -le 3 ] || fail "checkpoints are left: $(ls killed)" # the latest, the best, and one about to go
done
end=$((last + 5))
"$tally" train --resume --out-dir killed --max-iters $end >out 2>err || fail "the last resume"
"$tally" train "$@" --out-dir alone --max-iters $end >out 2>err || fail "the run that nobody kills"
for file in model.safetensors optimizer.safetensors config.json meta.json; do
    cmp "killed/step-$end/$file" "alone/step-$end/$file" || fail "$file is another after $kills kills"
done
strip='s/,"lr".*//; s/"settings".*//' # times differ
[ "$(sed "$strip" killed/log.jsonl | tail -n +2 | sha256sum)" = "$(sed "$strip" alone/log.jsonl | tail -n +2 | sha256sum)" ] || fail "the log is another"
ls killed | grep -q tmp && fail "left behind: $(ls killed)"
echo "$done_kills kills; $resumed of $kills resumed runs came forward, to step $end, with the same bits"

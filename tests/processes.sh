#!/usr/bin/env bash
# Several processes at one folder, and processes whose surroundings go away.   tests/processes.sh BUILD/tally
#
# Two runs in one folder; readers of a run that removes its checkpoints; data that is prepared again, removed or cut short under a run; a
# terminal, a pipe or an output that is gone. Nothing may be lost or mixed, and what is wrong is said.
set -u
tally=$(realpath "$1")
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
tiny="--model nano --n-layer 2 --n-embd 32 --n-head 2 --threads 1 --device cpu --block-size 16 --batch-size 2 --quiet"
steps=$([ -n "${SANITIZED:-}" ] && echo 300 || echo 1000)
failed=0

fail()
{
    echo "FAILED: $*"
    tail -n 5 out err 2>/dev/null | sed 's/^/    /'
    failed=1
}

# ends CODE TEXT ARGUMENT...: `tally ARGUMENT...` with this exit code and, in what it says, this text.
ends()
{
    local code=$1 text=$2
    shift 2
    "$tally" "$@" >out 2>err
    [ $? = "$code" ] && grep -qF -- "$text" out err || fail "$* should end with $code and say: $text"
}

# appears PATTERN: waits for a file of that name.
appears()
{
    for _ in $(seq 3000); do
        ! compgen -G "$1" >/dev/null || return 0
        sleep 0.01
    done
    fail "$1 does not appear"
}

# weights RUN: of its last step.
weights()
{
    sha256sum <"$1/step-$steps/model.safetensors"
}

yes 'the cat sat on a mat and the dog ran far we see' | head -n 400 >text # 16 kinds of characters, each of one byte
ends 0 train.bin data prepare text --out data
ends 0 '' train $tiny --data data --out-dir alone --eval-interval 7 --max-iters "$steps"

# A run that saves at each step and keeps one checkpoint. Meanwhile nobody else writes there, and who reads finds whole checkpoints.
"$tally" train $tiny --data data --out-dir busy --checkpoint-interval 1 --keep 1 --eval-interval 7 --max-iters "$steps" >busy.out 2>&1 &
run=$!
appears "busy/step-*[0-9]"
kill -STOP $run # it may not be over before these are
ends 1 "busy: process $run on " train --resume --out-dir busy --max-iters 99999999
ends 1 "busy: process $run on " data prepare text --out busy
kill -CONT $run
for _ in $(seq 15); do
    kill -0 $run 2>/dev/null || break
    ends 0 '' sample --out-dir busy --max-new-tokens 1 --threads 1
    [ -s err ] && fail "a sample of a run in progress"
    ends 0 '' report busy
done
wait $run || fail "a run that was looked at: $(cat busy.out)"
[ "$(weights alone)" = "$(weights busy)" ] || fail "a run that was looked at ends otherwise"
[ "$(wc -l <busy/log.jsonl)" = $((steps + 1)) ] || fail "the log of a run that was looked at"

# Of several that begin at once, one goes on; which one holds the folder is gone with it, however it ends.
for i in 1 2 3; do
    "$tally" train $tiny --data data --out-dir race --eval-interval 7 --max-iters "$steps" >"race.$i" 2>&1 &
    "$tally" data prepare text --out race-data >"prepare.$i" 2>&1 &
done
wait
for name in race prepare; do
    [ "$(grep -l 'Done after step\|Train on it' $name.? | wc -l)" -ge 1 ] || fail "$name: none of three went through"
    [ "$(grep -l "Done after step\|Train on it\|is writing there; wait\|has checkpoints of an earlier run" $name.? | wc -l)" = 3 ] ||
        fail "$name: $(tail -qn 1 $name.?)"
done
[ "$(weights alone)" = "$(weights race)" ] && [ "$(wc -l <race/log.jsonl)" = $((steps + 1)) ] || fail "three runs begun at once are mixed"
cmp -s data/train.bin race-data/train.bin || fail "data prepared three times at once is mixed"
"$tally" train $tiny --data data --out-dir killed --checkpoint-interval 1 --max-iters 99999999 >out 2>&1 &
run=$!
appears "killed/step-*[0-9]"
kill -KILL $run
wait $run 2>/dev/null
ends 0 'Done after step' train --resume --out-dir killed --max-iters $(($(basename "$(ls -td killed/step-*[0-9] | head -n 1)" | cut -c6-) + 5))

# The data is prepared anew under a run, and then removed: the run goes on with what it had, and its checkpoints say what that was.
cp -r data moved
"$tally" train $tiny --data moved --out-dir kept --checkpoint-interval 50 --eval-interval 7 --max-iters "$steps" >kept.out 2>&1 &
run=$!
appears "kept/step-*[0-9]"
ends 0 train.bin data prepare text --tokenizer byte --out moved
rm -r moved
wait $run || fail "a run whose data was prepared again: $(cat kept.out)"
[ "$(weights alone)" = "$(weights kept)" ] || fail "a run whose data was prepared again ends otherwise"
cmp -s data/meta.json "kept/step-$steps/meta.json" || fail "the checkpoint's meta.json is not that of its data"

# As many tokens, of which an id means something else: not to be gone on with.
ends 0 train.bin data prepare text --tokenizer byte --out bytes
ends 0 '' train $tiny --data bytes --out-dir bytes-run --max-iters 1
ends 2 "data: the tokens of data/meta.json mean something else than those of bytes-run/step-1/meta.json" \
    train --resume --out-dir bytes-run --data data --max-iters 2
ends 2 "data: the tokens of data/meta.json mean something else" train $tiny --init-from bytes-run/step-1 --data data --out-dir mixed

# Data that becomes other data while runs begin: a run has all of one, or does not begin.
(while :; do "$tally" data prepare text --out turning && "$tally" data prepare text --tokenizer byte --out turning; done) >/dev/null 2>&1 &
turner=$!
appears turning/meta.json
began=0
for _ in $(seq 25); do
    rm -rf turn
    if "$tally" train $tiny --data turning --out-dir turn --eval-interval 0 --max-iters 1 >out 2>err; then
        began=$((began + 1))
        [ "$(grep -c characters turn/step-1/meta.json)$(grep -o 'vocabulary [0-9]*' out)" = "$(
            grep -q '"char"' turn/step-1/meta.json && echo '1vocabulary 16' || echo '0vocabulary 256')" ] || fail "a run with the one's ids and the other's meaning"
    else
        grep -q 'has changed while\|is at work there\|no train.bin\|cannot open: No such file' err || fail "a run that begins while the data changes"
    fi
done
kill $turner
wait $turner 2>/dev/null
[ $began -gt 0 ] || fail "none of 25 runs began"

# A token file or a checkpoint that is cut short while it is mapped.
for split in train val; do
    cp -r data "cut-$split"
    "$tally" train $tiny --data "cut-$split" --out-dir "cut-$split-run" --checkpoint-interval 1 --eval-interval 1 --max-iters 99999999 >out 2>err &
    run=$!
    appears "cut-$split-run/step-*[0-9]"
    : >"cut-$split/$split.bin"
    wait $run
    [ $? = 1 ] && grep -q "cut-$split/$split.bin: cannot be read on: it was made shorter" err || fail "$split.bin cut short under a run"
    ends 0 '' sample --out-dir "cut-$split-run" --max-new-tokens 1
done

# The terminal goes away (twice, as happens), or was given up before; the reader of the output goes away; the output cannot be written.
"$tally" train $tiny --data data --out-dir hung --checkpoint-interval 1 --keep 1 --max-iters 99999999 >out 2>err &
run=$!
appears "hung/step-*[0-9]"
kill -HUP $run
kill -HUP $run
wait $run && grep -q 'Stopped after step' out || fail "a run whose terminal is gone should save and end"
(trap '' HUP && exec "$tally" train $tiny --data data --out-dir nohup --checkpoint-interval 1 --eval-interval 7 --max-iters "$steps") >out 2>err &
run=$!
appears "nohup/step-*[0-9]"
kill -HUP $run
wait $run && [ "$(weights alone)" = "$(weights nohup)" ] || fail "a run under nohup"
"$tally" train $tiny --data data --out-dir unread --eval-interval 7 --max-iters "$steps" 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" = 1 ] && grep -q 'standard output: cannot write' err && [ "$(weights alone)" = "$(weights unread)" ] || fail "a run whose reader is gone"
"$tally" train $tiny --data data --out-dir closed --eval-interval 7 --max-iters "$steps" <&- >&- 2>&-
[ $? = 0 ] && [ "$(weights alone)" = "$(weights closed)" ] || fail "a run without standard streams"
for command in --help 'train --help' "train $tiny --data data --out-dir full --max-iters 2" 'sample --out-dir full --max-new-tokens 5' 'report full' \
    'plan --json' "bench $tiny --max-iters 1" doctor 'data info data' 'data prepare text --out full-data' 'data stories --bytes 1000'; do
    "$tally" $command >/dev/full 2>err
    [ $? = 1 ] && grep -q 'standard output: cannot write' err || fail "$command >/dev/full"
done

[ $failed = 0 ] && echo "folders shared, and nothing lost; $began of 25 runs began while their data changed"
exit $failed

#!/usr/bin/env bash
# What `tally data prepare` does with texts and disks at their limits.   tests/prepare_limits.sh BUILD/tally
#
# Texts larger than the memory it may have, of one line, of NULs, of the shortest lines; a disk that is full; Ctrl-C and kill -9 on the way. MIB is the size of
# the large text: 1024, or 192 with QUICK=1.
set -u
tally=$(realpath "$1")
mib=$([ -n "${QUICK:-}" ] && echo 192 || echo 1024)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
failed=0

fail()
{
    echo "FAILED: $*"
    sed 's/^/    /' out err 2>/dev/null | head -n 20
    failed=1
}

# ends CODE TEXT ARGUMENT...: `tally data prepare ARGUMENT...` with this exit code and, in what it says, this text.
ends()
{
    local code=$1 text=$2
    shift 2
    "$tally" data prepare "$@" >out 2>err
    [ $? = "$code" ] && grep -qF -- "$text" out err || fail "data prepare $* should end with $code and say: $text"
}

# nothing_left FOLDER: no half-written file.
nothing_left()
{
    [ ! -d "$1" ] || ! ls "$1" | grep -q 'tmp$\|unfinished\|input' || fail "$1 has $(ls "$1" | tr '\n' ' ')"
}

# Memory: sanitizers need too much of it to be limited.
truncate -s "${mib}M" nuls
bytes=$((mib * 1048576))
(
    [ -n "${SANITIZED:-}" ] || ulimit -v 400000
    ends 0 "$bytes bytes" nuls --tokenizer byte --val-fraction 0 --out nuls-byte
    exit $failed
) || failed=1
"$tally" data info nuls-byte --json | grep -q "\"tokens\": $bytes" || fail "not all NULs became tokens"
rm -rf nuls-byte
(
    [ -n "${SANITIZED:-}" ] || ulimit -v 400000
    ends 0 "$bytes bytes" nuls --separator '\t' --val-fraction 0 --out nuls-char # one document of one line of NULs
    exit $failed
) || failed=1
rm -rf nuls-char
yes y | head -c "$((mib * 100000))" >ys # the shortest documents there are
(
    [ -n "${SANITIZED:-}" ] || ulimit -v 400000
    ends 0 "$((mib * 50000)) documents" ys --separator '\n' --val-fraction 0 --out ys-char
    exit $failed
) || failed=1
rm -rf ys-char
if [ -n "${TALLY_TEST_DATA:-}" ]; then
    mkdir gpt2
    ln -s "$TALLY_TEST_DATA/gpt2-vocab.json" gpt2/vocab.json
    ln -s "$TALLY_TEST_DATA/gpt2-merges.txt" gpt2/merges.txt
    ends 1 "nuls: byte 0 begins 64 MiB in which there is no place where the gpt2 tokenizer can cut a text in two" \
        nuls --tokenizer gpt2:gpt2 --out nuls-gpt2
    nothing_left nuls-gpt2
else
    echo "SKIPPED in part: TALLY_TEST_DATA names no folder with GPT-2's vocabulary"
fi

# On a terminal the progress is shown, with the rate and the time that is left.
if command -v script >/dev/null; then
    script -qec "$tally data prepare nuls --val-fraction 0 --threads 1 --out shown" /dev/null >out 2>err </dev/null
    grep -q 'encoding  [0-9.]* of [0-9.]* MB, [0-9]* %, [0-9.]* MB/s, [0-9]* s left' out || fail "no progress on a terminal"
    rm -rf shown
fi

# A disk that has no more room: here a limit on the size of files, which says so in its own words; and a small file system.
echo 'a text that was there before, and has been prepared' >small
head -c 3000000 nuls >large
ends 0 train.bin small --tokenizer byte --out full
cp -r full before
(
    trap '' XFSZ
    ulimit -f 1000
    ends 1 "full/train_000000.bin.tmp: cannot write: File too large" large --tokenizer byte --out full
    exit $failed
) || failed=1
nothing_left full
diff -r -x .lock full before || fail "a full disk has changed the earlier data set"
mkdir disk
if unshare -m true 2>err; then
    unshare -m bash -c '
        mount -t tmpfs -o size=1M none disk || exit 77
        "$0" data prepare large --tokenizer byte --out disk/full >out 2>err && exit 1
        ls -A -I .lock disk/full >left; "$0" data prepare - --tokenizer byte --out disk/full <large >out-2 2>err-2 && exit 1
        ls -A -I .lock disk/full >>left' "$tally"
    case $? in
    0)
        grep -q "disk/full/train_000000.bin.tmp: cannot write: No space left on device" err || fail "a full tmpfs"
        grep -q "disk/full: cannot write a copy of standard input there: No space left on device" err-2 || fail "a full tmpfs, stdin"
        [ -s left ] && fail "on the full tmpfs is left: $(cat left)"
        ;;
    77) echo "SKIPPED in part: no tmpfs can be mounted here" ;;
    *) fail "a full tmpfs" ;;
    esac
else
    echo "SKIPPED in part: no mount name space here"
fi

# Interrupted: a run that waits for its input's second half, and one that is writing.
# begin OUT: starts to prepare all the NULs, and waits until something is written.
begin()
{
    "$tally" data prepare nuls --tokenizer byte --val-fraction 0 --out "$1" >out 2>err &
    pid=$!
    for _ in $(seq 600); do
        [ -s "$1/train_000000.bin.tmp" ] && return
        sleep 0.01
    done
    fail "nothing is written to $1"
}
begin full
kill -INT "$pid"
wait "$pid"
[ $? = 1 ] && grep -q "interrupted; full is as it was before" err || fail "after Ctrl-C"
nothing_left full
diff -r -x .lock full before || fail "Ctrl-C has changed the earlier data set"
begin full
kill -KILL "$pid"
wait "$pid" 2>/dev/null
"$tally" data info full >out 2>err && grep -q ' 46 tokens' out || fail "after kill -9 the earlier data set should be whole"
ends 0 train.bin small --tokenizer byte --out full
nothing_left full
diff -r -x .lock full before || fail "the same text is prepared otherwise after kill -9"

[ $failed = 0 ] && echo "$mib MiB of NULs in one line prepared${SANITIZED:+, without a limit to the memory}"
exit $failed

#!/bin/sh
# From nothing to a GPT that writes: text, tokens, training, samples. `make quickstart` builds, then calls this.
#
#   tools/quickstart.sh BUILD [TEXT]     BUILD has the binary, and gets a folder quickstart/ for all that is written
#
# Without TEXT it learns from tinyshakespeare (1.1 MB, downloaded and checked), or, when there is no way to get that, from stories
# that tally tells itself (tally data stories): then the loss is seen beside the floor that no model can go below.
set -eu
build=$1 text=${2:-}
tally=$build/tally
here=$build/quickstart
url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sha256=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
seconds=170  # on a slow machine training is stopped then, as by Ctrl-C: the model is saved, and training can go on

# download FILE: what keeps it from coming is in $why. A server that sends a byte now and then is no server.
download()
{
    if command -v curl >/dev/null; then
        why=$(timeout 30 curl -fsSL --connect-timeout 5 -o "$1" "$url" 2>&1) || return
    elif command -v wget >/dev/null; then
        why=$(timeout 30 wget -nv -T 5 -t 1 -O "$1" "$url" 2>&1) || return
    else
        why='there is neither curl nor wget'
        return 1
    fi
    why='what comes from there is another text'
}

is_shakespeare()
{
    [ -f "$1" ] && echo "$sha256  $1" | sha256sum -c --status
}

mkdir -p "$here"
if [ -e "$here/run" ]; then
    [ ! -e "$here/run/.lock" ] || flock -n 9 9<"$here/run/.lock" ||
        { echo "Another quickstart is at work in $here: $(cat "$here/run/.lock")"; exit 1; }
    earlier=$here/run-$(date -r "$here/run" +%Y%m%d-%H%M%S)
    mv "$here/run" "$earlier"
    echo "The model of an earlier quickstart is now in $earlier"
fi
shakespeare=$here/tinyshakespeare.txt
if [ "$text" ]; then
    echo "Text: $text"
elif is_shakespeare "$shakespeare" || { download "$shakespeare" && is_shakespeare "$shakespeare"; }; then
    text=$shakespeare
    echo "Text: tinyshakespeare, $text"
else
    echo "Text: stories, since tinyshakespeare cannot be downloaded: ${why:-it takes longer than 30 seconds}"
fi

run()
{
    echo
    echo "\$ $*"
    timeout --foreground --preserve-status -s INT $seconds "$@" # in the foreground, so that Ctrl-C reaches it
}
if [ "$text" ]; then
    steps=2000 # nanoGPT's recipe for a CPU
    run "$tally" data prepare "$text" --tokenizer char --out "$here/data"
    run "$tally" train --data "$here/data" --out-dir "$here/run" --model shakespeare-cpu --max-iters $steps \
        --log-interval 100 --eval-interval 500
else
    steps=1200 # of 8 windows, a story each
    run "$tally" data stories --bytes 20MB --seed 1 --val-fraction 0.01 --out "$here/data"
    run "$tally" train --data "$here/data" --out-dir "$here/run" --model shakespeare-cpu --max-iters $steps \
        --block-size 256 --batch-size 8 --whole-documents --learning-rate 2e-3 --log-interval 100 --eval-interval 300 --eval-iters 0
fi
run "$tally" sample --out-dir "$here/run" --max-new-tokens 500
run "$tally" report "$here/run"

cat <<END

The model is in $here/run: checkpoints that Hugging Face's transformers load as they are, and log.jsonl, a line per step.
Its memory and its curves, for a browser: $here/run/report.html
What next?
  another temperature   $tally sample --out-dir $here/run --prompt "The " --temperature 0.5
  train on              $tally train --out-dir $here/run --resume --max-iters $((2 * steps))
  your own text         make quickstart TEXT=book.txt
  what GPT-2 takes      $tally plan --model gpt2 --batch-size 4
END

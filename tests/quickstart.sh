#!/usr/bin/env bash
# `make quickstart` with every kind of network and disk.   tests/quickstart.sh BUILD/tally
#
# tools/quickstart.sh with a server of its own on 127.0.0.1, and runs of two steps: the text comes, comes cut short, is another, comes too
# slowly or not at all; there is curl, wget or neither; the disk is full; it is stopped, and started twice. It ends with a model, or says
# why not. Without TALLY_TEST_DATA the download that succeeds is left out.
set -u
command -v python3 >/dev/null || { echo "SKIPPED: the server needs python3"; exit 77; }
tally=$(realpath "$1") script=$(realpath tools/quickstart.sh)
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
failed=0

fail()
{
    echo "FAILED: $*"
    tail -n 5 said 2>/dev/null | sed 's/^/    /'
    failed=1
}

# A server: /text is the text, /cut has its length but ends early, /other is another one, /slow sends a byte each half second, /silent none.
cat >server.py <<'END'
import http.server, os, sys, time
text = open(sys.argv[1], "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/silent":
            time.sleep(60)
        if self.path == "/404":
            return self.send_error(404)
        body = b"<html>Log in to the network</html>" if self.path == "/other" else text
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/slow":
            for i in range(120):
                self.wfile.write(body[i:i + 1])
                time.sleep(0.5)
        self.wfile.write(body[:1000] if self.path == "/cut" else body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as f:
    f.write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
END
text=${TALLY_TEST_DATA:-}/tinyshakespeare.txt
[ -n "${TALLY_TEST_DATA:-}" ] || { text=some-text && yes 'no Shakespeare' | head -c 1000000 >some-text; }
python3 server.py "$text" 2>/dev/null &
server=$!
for _ in $(seq 1000); do
    [ -e port ] && break
    sleep 0.01
done

# place NAME [PROGRAM PAGE]: a folder with a `tally` whose runs have two steps, and a PATH on which of curl and wget there is at most this
# one, which gets that page of the server, whatever it asks for.
place()
{
    mkdir -p "$1/build" "$1/bin" "$1/net" # bin has links to the machine's own programs: nothing else is written there
    cat >"$1/build/tally" <<END
#!/bin/sh
case "\$1 \$2" in
train*) exec "$tally" "\$@" --threads 1 --device cpu --max-iters \${STEPS:-2} ;;
"data stories") shift 4 && exec "$tally" data stories --bytes 200KB "\$@" ;;
sample*) exec "$tally" "\$@" --max-new-tokens 5 ;;
esac
exec "$tally" "\$@"
END
    chmod +x "$1/build/tally"
    local tool
    for tool in cat date mkdir mv sha256sum timeout flock; do
        ln -sf "$(command -v $tool)" "$1/bin"
    done
    rm -f "$1/net/curl" "$1/net/wget"
    [ $# = 1 ] && return
    printf '#!/bin/bash\nexec "%s" "${@/https:*/http://127.0.0.1:%s/%s}"\n' "$(command -v "$2")" "$(cat port)" "$3" >"$1/net/$2"
    chmod +x "$1/net/$2"
}

# start NAME [TEXT]: the quickstart there. Its output is in NAME/said.
start()
{
    (cd "$1" && PATH=$PWD/net:$PWD/bin exec "$script" build ${2:+"$2"}) >"$1/said" 2>&1
}

# ends NAME CODE TEXT: how the command before ended, and in what it says, this text; with code 0 there is a model too.
ends()
{
    local code=$?
    [ $code = "$2" ] && grep -qF -- "$3" "$1/said" && { [ "$2" != 0 ] || { [ -e "$1/build/quickstart/run/report.html" ] &&
        [ -e "$1/build/quickstart/run/step-2/model.safetensors" ]; }; } || { cp "$1/said" said; fail "$1 ends with $code, not with $2 and: $3"; }
}

for program in curl wget; do
    command -v $program >/dev/null || { echo "SKIPPED in part: there is no $program" && continue; }
    for page in slow silent; do
        [ -n "${QUICK:-}" ] && [ $page = slow ] && continue
        place $program-$page $program $page
        (start $program-$page; ends $program-$page 0 'since tinyshakespeare cannot be downloaded: '; exit $failed) &
    done
    if [ -n "${TALLY_TEST_DATA:-}" ]; then
        place $program-text $program text
        start $program-text
        ends $program-text 0 'Text: tinyshakespeare, build/quickstart/tinyshakespeare.txt'
        rm $program-text/net/$program # the second time the text is there, and the first model is kept
        start $program-text
        ends $program-text 0 'Text: tinyshakespeare'
        ends $program-text 0 'The model of an earlier quickstart is now in build/quickstart/run-20'
        ls $program-text/build/quickstart/run-20*/step-2 >/dev/null || fail "the model of an earlier quickstart"
    fi
    for page in cut other 404; do
        place $program-$page $program $page
        start $program-$page
        ends $program-$page 0 'Text: stories, since tinyshakespeare cannot be downloaded: '
    done
    ends $program-other 0 'what comes from there is another text'
    ends $program-404 0 404
done
place offline
start offline
ends offline 0 'cannot be downloaded: there is neither curl nor wget'

# A text of one's own, and one that is not there.
place "own text"
echo "To be, or not to be, that is the question" >"own text/it's mine.txt"
for _ in 1 2 3 4 5 6; do cat "own text/it's mine.txt" "own text/it's mine.txt" >two && mv two "own text/it's mine.txt"; done
start "own text" "it's mine.txt"
ends "own text" 0 "Text: it's mine.txt"
start "own text" absent.txt
ends "own text" 1 'absent.txt: '

# Another one at work there, and Ctrl-C: the run in the foreground is stopped, saved and not left behind.
place twice
(cd twice && STEPS=99999999 PATH=$PWD/net:$PWD/bin exec "$script" build) >twice/first 2>&1 &
first=$!
for _ in $(seq 3000); do
    grep -q '^step ' twice/first && break
    sleep 0.01
done
owner=$(sed 's/process \([0-9]*\).*/\1/' twice/build/quickstart/run/.lock)
start twice
ends twice 1 "Another quickstart is at work in build/quickstart: process $owner"
kill -INT "$owner"
wait $first
grep -q 'Stopped after step' twice/first && grep -q 'The model is in' twice/first || fail "a quickstart that is stopped: $(tail -n 3 twice/first)"

# A disk that is full at once, or in the middle.
for size in 16k 1m 3m; do
    place full-$size
    mkdir full-$size/disk
    unshare -m true 2>/dev/null || { echo "SKIPPED in part: no mount name space here" && continue; }
    (cd full-$size && unshare -m bash -c 'mount -t tmpfs -o size="$0" none disk && cp build/tally disk &&
        PATH=$PWD/net:$PWD/bin exec "$1" disk' $size "$script" >said 2>&1)
    ends full-$size 1 'No space left on device'
done
for job in $(jobs -p); do
    [ "$job" = "$server" ] || wait "$job" || failed=1
done
[ $failed = 0 ] && echo 'ended with a model or a reason each time'
exit $failed

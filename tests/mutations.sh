#!/usr/bin/env bash
# Would the tests notice if a kernel forgot to wait?   tests/mutations.sh BUILD/tally
#
# On the software GPU (tests/softgpu/README.md) each barrier, fence and cp.async wait of each kernel is made to do nothing, one at a
# time; some test of the ops must then fail. Those that change nothing and can not be noticed are listed in tests/mutations.txt:
# the kernel without its template arguments, the number of the wait, and the reason. With LONG=1 all of them are tried, which takes
# an hour; otherwise every 40th. Exit code 1 when one went unnoticed.
set -u
build=$(realpath "$(dirname "$1")")
. tests/softgpu_find.sh
[ -z "${QUICK:-}" ] || { echo "SKIPPED: minutes; make test runs it"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TALLY_TEST_DEVICE=cuda SOFTGPU_LOG=/dev/null

# Programs with the test that they run, quick ones first.
runs=('test_attention_types test_types' 'test_ops_update' 'test_ops' 'test_precision_ops' 'test_attention_types test_huge_scores'
    'test_attention_types test_cached')

# run NUMBER: that one, with the settings in the environment.
run()
{
    local words
    read -ra words <<<"${runs[$1]}"
    timeout 300 "$build/unit/${words[0]}" "${words[@]:1}" >/dev/null 2>&1
}

# Which waits there are, and in which runs: lines "kernel <tab> index <tab> text" in $folder/0, $folder/1, ...
for i in "${!runs[@]}"; do
    SOFTGPU_SYNCS=$folder/$i run "$i" || { echo "${runs[$i]} fails as it is"; exit 1; }
done
cat "$folder"/[0-9]* | sort -u >"$folder/all"
every=$([ -n "${LONG:-}" ] && echo 1 || echo 40)
awk "NR % $every == 0" "$folder/all" >"$folder/tried"

# noticed KERNEL INDEX: does some run that has the kernel fail without it?
noticed()
{
    for i in "${!runs[@]}"; do
        if grep -q "^$1	$2	" "$folder/$i" && ! SOFTGPU_CHECK=1 SOFTGPU_SKIP=$1:$2 run "$i"; then
            return 0
        fi
    done
    return 1
}

missed=0
while IFS=$'\t' read -r kernel index text; do
    name=$(c++filt "$kernel" | sed 's/^void //; s/[<(].*//')
    if grep -q "^$name $index " tests/mutations.txt || noticed "$kernel" "$index"; then
        continue
    fi
    echo "not noticed: $(c++filt "$kernel"), number $index: $text"
    missed=$((missed + 1))
done <"$folder/tried"
echo "$(wc -l <"$folder/tried") of $(wc -l <"$folder/all") waits left out, one at a time; $missed not noticed"
[ $missed = 0 ]

#!/usr/bin/env bash
# Writes C with a stub for every function that a library of the toolkit exports and our stand-in of it does not have: calls
# come to nothing, in words, rather than the program failing to start.
#
#   tests/softgpu/stubs.sh LIBRARY PREFIX CALL OBJECTS...     each stub returns CALL("NAME")
set -eu
library=$1 prefix=$2 call=$3
shift 3
echo "int $call(const char *name);"
comm -23 <(nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | grep "^$prefix" | sort -u) \
    <(nm -g --defined-only "$@" | awk '$2 == "T" { print $3 }' | sort -u) |
    sed "s/.*/int &(void);\nint &(void)\n{\n    return $call(\"&\");\n}/"

#!/bin/sh
# Registers of every kernel, as ptxas counted them when it was compiled:   tests/registers.sh BUILD/tally
#
# A kernel bound by memory may have 64, so that a multiprocessor has room for 1024 threads and enough accesses are in flight; attention
# 255, all there are. None may spill: registers that do not fit would be kept in memory. Prints the table; exit 1 when a kernel is
# over its limit.
build=$(dirname "$1")
ls "$build"/kernels/cuda/*.cu.log >/dev/null 2>&1 || { echo "SKIPPED: no kernels in $build: nvcc makes them"; exit 77; }

cat "$build"/kernels/cuda/*.cu.log | c++filt | awk '
    BEGIN { print "arch   registers  spilled  shared  kernel" }
    /Compiling entry function/ {
        arch = $NF
        gsub("\047", "", arch)
        name = $0
        sub(/.*entry function ./, "", name)
        sub(/. for .sm_.*/, "", name)
        sub(/^void /, "", name)
        sub(/\(.*/, "", name)
    }
    /bytes spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
        registers = shared = 0
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^registers/) registers = $(i - 1)
            if ($i ~ /^smem/) shared = $(i - 2)
        }
        limit = name ~ /attention/ ? 255 : 64
        over = registers > limit || spilled > 0
        printf "%-6s %9d  %7d  %6d  %s%s\n", arch, registers, spilled, shared, name, over ? "   OVER: at most " limit ", none spilled" : ""
        bad += over
    }
    END { exit bad > 0 }'

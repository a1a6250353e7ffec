#!/bin/sh
# Registers of every kernel, as ptxas counted them when it was compiled.
#
#   tests/registers.sh BUILD/tally         checks them against the limits and against tests/registers.txt
#   tests/registers.sh BUILD/tally table   prints that table anew, from a build with CUDA_ARCHS="80 90"
#
# A kernel bound by memory may have 64, so that a multiprocessor has room for 1024 threads and enough accesses are in flight;
# attention 255, all there are. None may spill: registers that do not fit would be kept in memory. Against the table: every kernel
# is in it, and has at most 8 registers more than it says, since another nvcc counts a little differently. On sm_75 the gradient of
# heads above 96 never runs on tensor cores, since a block's shared memory is too small there (kernels/cuda/attention.cu): what
# those kernels spill is left out. For sm_120 the ptxas of CUDA 13.0 keeps more values at once than elsewhere: five kernels spill up
# to 204 bytes there, or take 80 registers where 64 are asked (docs/measurements/gpu.md); no more than that.
build=$(dirname "$1")
ls "$build"/kernels/cuda/*.cu.log >/dev/null 2>&1 || { echo "SKIPPED: no kernels in $build: nvcc makes them"; exit 77; }

# Lines "arch registers spilled kernel".
counted()
{
    cat "$build"/kernels/cuda/*.cu.log | c++filt | awk '
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
            for (i = 2; i <= NF; i++)
                if ($i ~ /^registers/) print arch, $(i - 1), spilled, name
        }'
}

if [ "${2:-}" = table ]; then
    echo '# Registers of each kernel, compiled by nvcc 13.0 for sm_80 and for sm_90: see tests/registers.sh, which writes and checks this.'
    counted | awk '
        { name = $0; sub(/^[^ ]* [^ ]* [^ ]* /, "", name); all[name]; registers[name, $1] = $2 }
        END { for (name in all) printf "%5d %5d  %s\n", registers[name, "sm_80"], registers[name, "sm_90"], name }' | LC_ALL=C sort -k3
    exit
fi

counted | awk '
    FILENAME != "-" && !/^#/ { name = $0; sub(/^ *[0-9]+ +[0-9]+ +/, "", name); known[name, "sm_80"] = $1; known[name, "sm_90"] = $2 }
    FILENAME == "-" {
        name = $0
        sub(/^[^ ]* [^ ]* [^ ]* /, "", name)
        if ($1 == "sm_75" && name ~ /attention_(key|query)_kernel<.*, (128|192|256)>/)
            next
        most = name ~ /attention/ ? 255 : 64
        spare = $1 == "sm_120" ? 204 : 0
        if (spare && most < 80)
            most = 80
        wrong = $3 > spare ? "spills " $3 " bytes" : $2 > most ? "over " most : ""
        if (wrong == "" && ($1 == "sm_80" || $1 == "sm_90"))
            wrong = !((name, $1) in known) ? "not in tests/registers.txt" : $2 > known[name, $1] + 8 ? "was " known[name, $1] : ""
        printf "%s %4d  %s%s\n", $1, $2, name, wrong == "" ? "" : "   WRONG: " wrong
        bad += wrong != ""
    }
    END { exit bad > 0 }' tests/registers.txt -

#!/bin/sh
# What tally needs from the system, how it is found, and which Debian package brings it.
#
#   tools/deps.sh check GROUP...     a line for each thing that is missing; exit 1 if there is any
#   tools/deps.sh install GROUP...   installs the missing packages (root, with apt-get), or says how to; exit 1 if any is still missing
#
# Groups: build, test, fuzz, format, bench, report, hf. CC is the compiler that the libraries are looked for with.
CC=${CC:-cc}
trial=$(mktemp) || exit 1
trap 'rm -f "$trial"' EXIT

# group | what, for people | Debian packages | the test that finds it
needs()
{
    cat <<'END'
build|a C compiler with OpenMP|gcc libc6-dev|library omp.h m -fopenmp
build|oneDNN 2, matrix products on the CPU|libdnnl-dev|onednn
build|jansson, JSON|libjansson-dev|library jansson.h jansson
build|PCRE2, Unicode patterns|libpcre2-dev|library pcre2.h pcre2-8 -DPCRE2_CODE_UNIT_WIDTH=8
test|cmocka, unit tests|libcmocka-dev|library cmocka.h cmocka
fuzz|clang with libFuzzer, fuzz tests|clang libclang-rt-dev|fuzzer
format|clang-format, the style of the sources|clang-format|program clang-format
bench|PyTorch, to compare with|python3-torch|torch
bench|OpenBLAS, which PyTorch multiplies with|libopenblas0-openmp|openblas
report|Chromium and Python, for the browser test of the report|chromium python3|browser
hf|PyTorch and virtual environments of Python|python3-torch python3-venv|venv
END
}

# Does a program with this header and this library compile and link?
library()
{
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" |
        $CC -x c - -o "$trial" $3 "-l$2"
}

# Version 3 has another interface.
onednn()
{
    library dnnl.h dnnl &&
        printf '#include <dnnl.h>\n#if DNNL_VERSION_MAJOR != 2\n#error\n#endif\n' | $CC -x c - -fsyntax-only
}

fuzzer()
{
    printf 'int LLVMFuzzerTestOneInput(const char *d, long n);\nint LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n' |
        clang -x c - -o "$trial" -fsanitize=fuzzer,address,undefined
}

program()
{
    command -v "$1"
}

browser()
{
    program chromium && program /usr/bin/python3
}

torch()
{
    "${BENCH_PYTHON:-/usr/bin/python3}" -c 'import torch'
}

# Debian's PyTorch runs with the reference BLAS too, thirty times slower: no peer. Another PyTorch brings its own.
openblas()
{
    "${BENCH_PYTHON:-/usr/bin/python3}" -c 'import torch; raise SystemExit(not torch.backends.mkl.is_available() and "openblas" not in open("/proc/self/maps").read())'
}

venv()
{
    BENCH_PYTHON=/usr/bin/python3 torch && /usr/bin/python3 -c 'import ensurepip, venv'
}

# Sets `missing` (lines for people) and `packages` for the groups asked for.
look()
{
    missing='' packages=''
    while IFS='|' read -r group what debian test; do
        case " $groups " in *" $group "*) ;; *) continue ;; esac
        $test >/dev/null 2>&1 </dev/null && continue
        missing="${missing}missing: $what (Debian: $debian)
"
        packages="$packages $debian"
    done <<END
$(needs)
END
}

install()
{
    echo "Installing Debian packages:$packages"
    export DEBIAN_FRONTEND=noninteractive
    options='-qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=30'
    apt-get $options update >"$trial" 2>&1
    apt-get $options install -y --no-install-recommends $packages >"$trial" 2>&1 </dev/null || tail -n 5 "$trial" >&2
}

action=$1
shift
groups=$*
look
if [ "$action" = install ] && [ "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install
    look
fi
[ "$packages" ] || exit 0
printf '%s' "$missing" >&2
echo "Install with:  sudo apt-get install$packages" >&2
exit 1

#!/usr/bin/env python3
"""A training step of tally against PyTorch's, FP32, the same models on the same machine.

The two run in turns, each time as a new process, so that what else the machine does meets both: T P T P ... A ratio is taken
within a round; shown are medians over the rounds, and the ratio's range. Below 1: tally is faster.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# name, L, NH, C, V, B, T, timed steps, peak resident GiB of PyTorch 1.13
ROWS = [
    ("GPT-2 124M, B4 T64", 12, 12, 768, 50257, 4, 64, 4, 3),
    ("GPT-2 124M, B4 T256", 12, 12, 768, 50257, 4, 256, 2, 5),
    ("GPT-2 124M, B4 T1024", 12, 12, 768, 50257, 4, 1024, 1, 11),
    ("6L 6H 384 V65, B12 T64", 6, 6, 384, 65, 12, 64, 20, 1),
    ("6L 6H 384 V65, B64 T256", 6, 6, 384, 65, 64, 256, 2, 6),
    ("4L 4H 128 V65, B12 T64", 4, 4, 128, 65, 12, 64, 100, 1),
]


def output_json(command, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return json.loads(done.stdout)


def tally_ms(tally, threads, steps, L, NH, C, V, B, T):
    padding = 128 if V > 1024 else 1  # as GPT-2 is trained in practice: 50257 tokens in 50304 rows
    settings = dict(model="gpt2", n_layer=L, n_head=NH, n_embd=C, vocab_size=V, vocab_multiple=padding, batch_size=B, block_size=T,
                    dropout=0, max_iters=steps, threads=threads)
    return output_json([tally, "bench", "--json"] + [f"--{k}={v}" for k, v in settings.items()])["ms_median"]


def pytorch(python, environment, threads, steps, flags, L, NH, C, V, B, T):
    settings = dict(layers=L, heads=NH, channels=C, vocab=V, batch=B, block=T, steps=steps, threads=threads)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_step.py")
    return output_json([python, script] + [f"--{k}={v}" for k, v in settings.items()] + flags, environment)


# OpenBLAS, which multiplies matrices for Debian's PyTorch, picks its kernels by the processor's model number; one that is newer
# than the library gets those of 2004, several times slower than it need be. So each set that the processor can run is tried. Threads
# are bound to cores, since PyTorch has a team for the forward and one for the backward, which wait spinning on each other's cores
# (bound, its step of a small model takes half the time).
CORETYPES = {"Haswell": "avx2", "SkylakeX": "avx512dq", "Cooperlake": "avx512_bf16"}
PROBE = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
a, b, times = torch.randn(256, 768), torch.randn(768, 3072), []
for _ in range(60):
    start = time.perf_counter()
    a @ b
    times.append(time.perf_counter() - start)
maps = open("/proc/self/maps").read()
print(2e-9 * 256 * 768 * 3072 / min(times), "mkl" if torch.backends.mkl.is_available() else
      "OpenBLAS" if "openblas" in maps else "a BLAS other than OpenBLAS and MKL")
"""


def blas_settings(python, threads):
    """The environment in which this PyTorch multiplies FP32 matrices fastest, and the line that says which that is."""
    with open("/proc/cpuinfo") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    best = None
    for coretype in [None] + [c for c, flag in CORETYPES.items() if flag in flags]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        environment.setdefault("OMP_PROC_BIND", "true")
        if coretype:
            environment["OPENBLAS_CORETYPE"] = coretype
        done = subprocess.run([python, "-c", PROBE, str(threads)], stdout=subprocess.PIPE, text=True, env=environment, check=False)
        if done.returncode != 0:
            continue
        gflops, blas = done.stdout.split(maxsplit=1)
        if best is None or float(gflops) > 1.05 * best[0]:
            best = (float(gflops), environment, f"{blas.strip()}, kernels {coretype or 'by its own choice'}, {float(gflops):.0f} GFLOP/s")
        if "OpenBLAS" not in blas or "other" in blas:
            break
    if best is None:
        sys.exit(f"{python} cannot multiply matrices with PyTorch")
    return best[1], best[2]


def available_gib():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tally", default="build/tally")
    parser.add_argument("--python", default=os.environ.get("BENCH_PYTHON") or "/usr/bin/python3", help="one that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps of a run, instead of each row's own")
    parser.add_argument("--row", action="append", help="only rows with this in their name; may be repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile")
    o = parser.parse_args()

    flags = ["--compile"] if o.compile else []
    environment, blas = blas_settings(o.python, o.threads)
    peer = pytorch(o.python, environment, o.threads, 1, flags, 1, 1, 8, 8, 1, 8)
    print(f"PyTorch {peer['torch']} ({o.python}), attention {peer['attention']}, {peer['optimizer']}, "
          f"{'compiled' if o.compile else 'eager'}; {o.threads} threads, FP32, {o.rounds} rounds\nIts matrices: {blas}\n")
    print(f"{'ms per training step':<26}{'tally':>10}{'PyTorch':>10}   tally / PyTorch", flush=True)
    for name, *shape, steps, gib in ROWS:
        if o.row and not any(part in name for part in o.row):
            continue
        if gib > available_gib():
            print(f"{name:<26}   left out: PyTorch takes {gib} GiB, {available_gib():.1f} are free", flush=True)
            continue
        ours, theirs = [], []
        for _ in range(o.rounds):
            ours.append(tally_ms(o.tally, o.threads, o.steps or steps, *shape))
            theirs.append(statistics.median(pytorch(o.python, environment, o.threads, o.steps or steps, flags, *shape)["ms"]))
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(f"{name:<26}{statistics.median(ours):>10.1f}{statistics.median(theirs):>10.1f}"
              f"   {statistics.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()

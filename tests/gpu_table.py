#!/usr/bin/env python3
"""The table of a stage of tests/gpu.sh: what its folder's files say, as Markdown."""
import collections
import csv
import glob
import json
import os
import sys


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |")


def heading(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def bench_table(results):
    print(f"Card: {results[0]['device']}. Copy {max(r['copy_gb_per_s'] for r in results):.0f} GB/s. An op's time has the launch and "
          f"the wait for it in it, {min(r['launch_us'] for r in results):.0f} us.\n")
    heading("model", "B x T", "precision", "recompute", "ms", "tokens/s", "MFU %", "GEMM peak TFLOP/s", "planned GiB")
    for r in results:
        row(r["model"], f"{r['batch_size']} x {r['block_size']}", r["name"].split("-")[-2], r["recompute"], f"{r['ms_median']:.2f}",
            f"{r['tokens_per_s']:.0f}", f"{100 * r['mfu']:.1f}", f"{r['gemm_peak_gflops'] / 1e3:.1f}", f"{r['planned_bytes'] / 2**30:.2f}")
    print("\nOps, of their bound (bytes at the rate of a copy, or FLOPs at the GEMM peak):\n")
    ops = sorted({op for r in results for op in r["ops"]})
    heading("run", *ops)
    for r in results:
        row(r["name"], *(f"{100 * r['ops'][op]['bound_ms'] / r['ops'][op]['ms']:.0f} %" if op in r["ops"] else "" for op in ops))
    print()


def peer_table(results):
    print(f"Card: {results[0]['card']}. PyTorch {results[0]['torch']}, compiled, fused AdamW.\n")
    heading("model", "B x T", "precision", "tally ms", "PyTorch ms", "speed, tally / PyTorch", "memory, tally / PyTorch")
    for r in results:
        row(r["model"], f"{r['batch_size']} x {r['block_size']}", r["precision"], f"{r['tally_ms']:.2f}", f"{r['pytorch_ms']:.2f}",
            f"{r['speed_ratio']:.3f} ({min(r['ratios']):.3f} to {max(r['ratios']):.3f})", f"{r['memory_ratio']:.3f}")
    print()


def profile_table(name, lines):
    """ncu's raw page: a heading, a line of units, a line per launch. Sums and means over the launches of each kernel."""
    table = list(csv.DictReader(line for line in lines if line.startswith('"')))
    by_kernel = collections.defaultdict(list)
    for launch in table[1:]:
        by_kernel[launch["Kernel Name"].split("(")[0]].append(launch)
    value = lambda launch, metric: float(launch[metric].replace(",", "") or 0)
    metrics = [m for m in table[0] if "__" in m]
    units = {m: table[0][m] for m in metrics}
    time = next(m for m in metrics if m.startswith("gpu__time_duration"))
    print(f"{name}, one process:\n")
    heading("kernel", "launches", *(f"{m} {units[m]}" for m in metrics))
    for kernel, launches in sorted(by_kernel.items(), key=lambda k: -sum(value(n, time) for n in k[1])):
        row(f"`{kernel}`", len(launches),
            *(f"{sum(value(n, m) for n in launches) / (1 if '.sum' in m else len(launches)):.4g}" for m in metrics))
    print()


def main():
    folder = sys.argv[1]
    print(f"# {os.path.basename(folder)}\n")
    results = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path) as f:
            results.append({"name": os.path.basename(path)[:-5], **json.load(f)})
    benches, peers = [r for r in results if "ops" in r], [r for r in results if "speed_ratio" in r]
    if benches:
        bench_table(benches)
    if peers:
        peer_table(peers)
    for r in results:
        if "failed" in r.get("tally", {}) or "failed" in r.get("pytorch", {}):
            print(f"- {r['name']}: tally: {r['tally'].get('failed', 'ran')}; PyTorch: {r['pytorch'].get('failed', 'ran')}")
    for path in sorted(glob.glob(os.path.join(folder, "*.csv"))):
        with open(path) as f:
            profile_table(os.path.basename(path)[:-4], f)
    for kind in "done", "skipped", "failed":
        for path in sorted(glob.glob(os.path.join(folder, "*." + kind))):
            with open(path) as f:
                text = " ".join(f.read().split())
            print(f"- {os.path.basename(path)[:-len(kind) - 1]}: {kind}{': ' + text if text else ''}")


if __name__ == "__main__":
    main()

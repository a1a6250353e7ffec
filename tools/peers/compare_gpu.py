#!/usr/bin/env python3
"""A training step of tally against PyTorch's, compiled, on the same GPU, in every precision.

The two run in turns, each time as a new process: T P T P ... A ratio is taken within a round. Each row's result is a file
OUT/NAME.json, and a row that has one is not run again, so that the work can be done in pieces; exit code 75 when the time is up
before all is done.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# model, L, NH, C, B: the most telling first
ROWS = [
    ("gpt2", 12, 12, 768, 16),
    ("gpt2-xl", 48, 25, 1600, 4),
    ("gpt2", 12, 12, 768, 64),
    ("gpt2", 12, 12, 768, 4),
    ("gpt2-xl", 48, 25, 1600, 16),
    ("gpt2", 12, 12, 768, 32),
    ("gpt2", 12, 12, 768, 8),
]
V, T = 50257, 1024


def output_json(command):
    """The JSON that it prints, or why there is none: the last line of what it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return json.loads(done.stdout[done.stdout.index("{"):])


def tally(o, model, B, precision):
    return output_json([o.tally, "bench", "--json", "--device=cuda", f"--model={model}", f"--batch-size={B}", f"--block-size={T}",
                        "--vocab-multiple=128", "--dropout=0", f"--precision={precision}", f"--max-iters={o.steps}"])


def pytorch(o, L, NH, C, B, precision):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_step.py")
    return output_json([o.python, script, "--device=cuda", "--compile", f"--precision={precision}", f"--steps={o.steps}",
                        f"--layers={L}", f"--heads={NH}", f"--channels={C}", f"--vocab={V}", f"--batch={B}", f"--block={T}"])


def compare(o, row, precision):
    """The medians of both over the rounds, their ratios, and what memory each took."""
    model, L, NH, C, B = row
    rounds = []
    for _ in range(o.rounds):
        ours, theirs = tally(o, model, B, precision), pytorch(o, L, NH, C, B, precision)
        if "failed" in ours or "failed" in theirs:
            return {"tally": ours, "pytorch": theirs}
        rounds.append((ours["ms_median"], statistics.median(theirs["ms"])))
    ratios = [b / a for a, b in rounds]  # of speeds: above 1 tally is faster
    return {"model": model, "batch_size": B, "block_size": T, "precision": precision, "card": ours["device"], "torch": theirs["torch"],
            "tally_ms": statistics.median(a for a, _ in rounds), "pytorch_ms": statistics.median(b for _, b in rounds),
            "speed_ratio": statistics.median(ratios), "ratios": ratios, "tally_bytes": ours["planned_bytes"],
            "pytorch_bytes": theirs["peak_bytes"], "memory_ratio": ours["planned_bytes"] / theirs["peak_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--tally", default="build/tally")
    parser.add_argument("--python", default=os.environ.get("BENCH_PYTHON") or "python3", help="one that has torch with CUDA")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=400, help="begin no row after so many")
    o = parser.parse_args()

    os.makedirs(o.out, exist_ok=True)
    for precision in ["bf16", "tf32", "fp16", "fp32"]:
        for row in ROWS:
            path = os.path.join(o.out, f"{row[0]}-B{row[4]}-{precision}.json")
            if os.path.exists(path):
                continue
            if time.monotonic() - START > o.seconds:
                print("The time is up: run this again for the rest.")
                return 75
            result = compare(o, row, precision)
            with open(path + ".tmp", "w") as f:
                json.dump(result, f, indent=1)
            os.replace(path + ".tmp", path)
            print(path, f"{result['speed_ratio']:.3f} of PyTorch's speed" if "speed_ratio" in result else result, flush=True)
    return 0


START = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())

"""Checkpoints between tally and Hugging Face's transformers; called by hf_check.sh.

    hf_check.py TALLY WORK DATA CHECKPOINT...

TALLY is the binary, WORK an existing folder for intermediate files, DATA a folder of token files (bytes), and each CHECKPOINT a
folder that `tally train` has saved.

Ours to theirs: GPT2LMHeadModel.from_pretrained(CHECKPOINT) finds every tensor it wants and no other, and computes the logits that
`tally golden` computes from the same files.

Theirs to ours: a GPT2LMHeadModel with random weights is saved by save_pretrained; `tally train --init-from` reads it and saves it
again after 0 steps: the same weights bit for bit, and the same logits as the model that was saved.

Logits are compared with the transformers model in double precision. Exits with 1 when anything differs.
"""

import json
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

LIMIT = 1e-5  # relative L2 error of the logits; float32 rounding makes about 5e-7
failures = 0


def check(what, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'}  {what}{': ' if detail else ''}{detail}")


def run(*command):
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"hf_check: {' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}")


def tally_logits(tally, checkpoint, tokens, work):
    """Logits [B, T, V] of the checkpoint's model, by way of a golden case that expects nothing."""
    case = work / "case"
    out = work / "golden-out"
    case.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (case / name).write_bytes((checkpoint / name).read_bytes())
    B, T = tokens.shape
    ids = tokens.to(torch.int32).reshape(1, 1, B, T).contiguous()
    save_file({"tokens": ids, "targets": ids.clone()}, case / "batches.safetensors")
    (case / "case.json").write_text(json.dumps({
        "case": "hf", "kind": "gpt2", "batch": {"steps": 1, "micro_batches": 1, "B": B, "T": T},
        "init": {"kind": "file", "file": "model.safetensors"},
        "files": {"logits.safetensors": "logits of step 1, micro-batch 0"}}))
    run(tally, "golden", case, "--out", out)
    return load_file(out / "logits.safetensors")["logits"]


def compare_logits(name, tally, model, checkpoint, work):
    """The logits of `model` and of the checkpoint, for the same random tokens, all positions in use."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.config.vocab_size, (3, model.config.n_positions), generator=generator)
    with torch.no_grad():
        theirs = model.double().eval()(tokens).logits
    ours = tally_logits(tally, checkpoint, tokens, work).double()
    check(f"{name}: logits have the shape {list(theirs.shape)}", ours.shape == theirs.shape)
    error = ((ours - theirs).norm() / theirs.norm()).item()
    check(f"{name}: the same logits", error < LIMIT, f"relative L2 error {error:.1e}, limit {LIMIT:.0e}")


def ours_to_theirs(tally, checkpoint, work):
    name = f"{checkpoint.parent.name}, from_pretrained"
    model, info = GPT2LMHeadModel.from_pretrained(checkpoint, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(f"{name}: no {kind}", not info[kind], ", ".join(map(str, info[kind])))
    tied = model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    check(f"{name}: the head is the token embedding", tied)
    compare_logits(name, tally, model, checkpoint, work)


def random_model(**config):
    """A model whose every parameter is random: biases and norms too, which start as 0 and 1."""
    torch.manual_seed(2)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=40, n_layer=3, bos_token_id=None, eos_token_id=None, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def theirs_to_ours(tally, name, model, work, data, **save):
    source = work / name
    out = work / f"{name}-ours"
    model.save_pretrained(source, **save)
    run(tally, "train", "--init-from", source, "--max-iters", 0, "--data", data, "--out-dir", out, "--batch-size", 1,
        "--eval-interval", 0, "--sample-interval", 0)
    checkpoint = out / "step-0"
    ours = load_file(checkpoint / "model.safetensors")
    theirs = {n.removeprefix("transformer."): p.detach() for n, p in model.named_parameters()}
    check(f"{name}, --init-from: the same names", set(ours) == set(theirs), ", ".join(sorted(set(ours) ^ set(theirs))))
    wrong = [n for n in theirs if n in ours and not torch.equal(ours[n], theirs[n].float())]
    check(f"{name}, --init-from: the same weights bit for bit", not wrong, ", ".join(wrong))
    config = json.loads((checkpoint / "config.json").read_text())
    fields = ("n_layer", "n_head", "n_embd", "n_inner", "n_positions", "vocab_size", "resid_pdrop")
    wrong = [f for f in fields if config[f] != getattr(model.config, f)]
    check(f"{name}, --init-from: the same configuration", not wrong, ", ".join(wrong))
    compare_logits(f"{name}, --init-from", tally, model, checkpoint, work)


def main():
    logging.disable_progress_bar()
    tally, work, data = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    for checkpoint in sys.argv[4:]:
        ours_to_theirs(tally, pathlib.Path(checkpoint), work)
    usual = {"n_embd": 60, "n_head": 5, "resid_pdrop": 0.2}
    theirs_to_ours(tally, "hf-float32", random_model(**usual), work, data)
    theirs_to_ours(tally, "hf-bfloat16", random_model(**usual).bfloat16(), work, data)
    theirs_to_ours(tally, "hf-float16", random_model(**usual).half(), work, data)
    theirs_to_ours(tally, "hf-sharded", random_model(**usual), work, data, max_shard_size="100KB")
    theirs_to_ours(tally, "hf-n-inner", random_model(n_embd=48, n_head=3, n_inner=100), work, data)
    print("hf_check: " + (f"{failures} failures" if failures else "all the same"))
    sys.exit(failures > 0)


main()

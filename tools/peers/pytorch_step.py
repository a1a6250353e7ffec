#!/usr/bin/env python3
"""One training step of GPT-2 in PyTorch, timed: what `make bench` and tests/gpu.sh hold tally against.

Forward, loss, backward, AdamW on random tokens, as a PyTorch user would write them: fused attention (scaled_dot_product_attention),
a fused AdamW where the installed version has them, autocast for BF16 and FP16 with FP32 weights, and a loss scaler for FP16. Prints
one JSON object: {"torch", "device", "threads", "attention", "optimizer", "compiled", "peak_bytes": allocated at most by PyTorch on a
GPU, "ms": [of each timed step]}.
"""
import argparse
import json
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")


def attention(q, k, v, mask):
    """Causal attention of q, k, v [B, NH, T, hd]; mask [T, T] is true above the diagonal."""
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v


class Block(nn.Module):
    def __init__(self, C, NH):
        super().__init__()
        self.NH = NH
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.c_fc, self.c_proj2 = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.NH, C // self.NH).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, dim=2))
        x = x + self.c_proj(attention(q, k, v, mask).transpose(1, 2).reshape(B, T, C))
        return x + self.c_proj2(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, L, NH, C, V, T):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, NH) for _ in range(L))
        self.ln_f = nn.LayerNorm(C)
        self.register_buffer("mask", torch.ones(T, T, dtype=torch.bool).triu(1))
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.ln_f(x) @ self.wte.weight.t()  # the head is tied to the embedding
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def adamw(parameters):
    """The fused AdamW, if this version has it for the device; and its name."""
    parameters = list(parameters)
    settings = dict(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)
    try:
        return torch.optim.AdamW(parameters, fused=True, **settings), "AdamW, fused"
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(parameters, **settings), "AdamW"


def step_function(model, forward, optimizer, tokens, targets, o):
    """What is timed, until the device is done with it."""
    scaler = torch.amp.GradScaler("cuda") if o.precision == "fp16" else None
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(o.precision)

    def step():
        with torch.autocast(o.device, dtype=narrow, enabled=narrow is not None):
            loss = forward(tokens, targets)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if o.device == "cuda":
            torch.cuda.synchronize()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag, default in dict(layers=12, heads=12, channels=768, vocab=50257, batch=4, block=64, steps=5).items():
        parser.add_argument("--" + flag, type=int, default=default)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"], help="other than fp32: on a GPU")
    o = parser.parse_args()

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = o.precision != "fp32"
    model = GPT(o.layers, o.heads, o.channels, o.vocab, o.block).to(o.device)
    optimizer, optimizer_name = adamw(model.parameters())
    forward = torch.compile(model) if o.compile else model
    tokens, targets = (torch.randint(o.vocab, (o.batch, o.block)).to(o.device) for _ in range(2))
    step = step_function(model, forward, optimizer, tokens, targets, o)
    uncounted = 1 if o.device == "cpu" else 5  # memory is taken, kernels are made and chosen
    ms = []
    for _ in range(o.steps + uncounted):
        start = time.perf_counter()
        step()
        ms.append(1e3 * (time.perf_counter() - start))
    peak = torch.cuda.max_memory_allocated() if o.device == "cuda" else None
    device = torch.cuda.get_device_name() if o.device == "cuda" else "CPU"
    print(json.dumps(dict(torch=torch.__version__, device=device, threads=o.threads, attention="fused" if HAS_SDPA else "written out",
                          optimizer=optimizer_name, compiled=o.compile, peak_bytes=peak, ms=ms[uncounted:])))


if __name__ == "__main__":
    main()

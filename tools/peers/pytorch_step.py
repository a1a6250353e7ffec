#!/usr/bin/env python3
"""One training step of GPT-2 in PyTorch, timed: what `make bench` holds tally against.

Forward, loss, backward, AdamW, in FP32 on random tokens, as a PyTorch user would write them: fused attention
(scaled_dot_product_attention) and a fused AdamW where the installed version has them. Prints one JSON object:
{"torch", "threads", "attention", "optimizer", "compiled", "ms": [of each timed step]}.
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
    """The fused AdamW, if this version has it for the CPU; and its name."""
    parameters = list(parameters)
    settings = dict(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)
    try:
        return torch.optim.AdamW(parameters, fused=True, **settings), "AdamW, fused"
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(parameters, **settings), "AdamW"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag, default in dict(layers=12, heads=12, channels=768, vocab=50257, batch=4, block=64, steps=5).items():
        parser.add_argument("--" + flag, type=int, default=default)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    o = parser.parse_args()

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model = GPT(o.layers, o.heads, o.channels, o.vocab, o.block)
    optimizer, optimizer_name = adamw(model.parameters())
    forward = torch.compile(model) if o.compile else model
    tokens, targets = (torch.randint(o.vocab, (o.batch, o.block)) for _ in range(2))
    ms = []
    for _ in range(o.steps + 1):  # the first is not counted: memory is taken, kernels are made
        start = time.perf_counter()
        forward(tokens, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ms.append(1e3 * (time.perf_counter() - start))
    print(json.dumps(dict(torch=torch.__version__, threads=o.threads, attention="fused" if HAS_SDPA else "written out",
                          optimizer=optimizer_name, compiled=o.compile, ms=ms[1:])))


if __name__ == "__main__":
    main()

"""Training steps for `memguard forecast FILE.py:function`: GPT-2 with 124 million parameters, and one of 7 billion."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from forecast_models import GPT


def gpt2_124m(batch: int = 4):
    """GPT-2 as it was published, tied head, 1024 tokens, bf16 autocast, AdamW."""
    return _step(GPT(768, 12, 12, 50257, 1024), batch, 1024)


def gpt_7b(batch: int = 1):
    """Width 4096, 32 blocks, 2048 tokens, a head of its own: 6.7 billion parameters."""
    return _step(GPT(4096, 32, 32, 32000, 2048, tied=False), batch, 2048)


def _step(model: GPT, batch: int, context: int):
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    vocabulary = model.wte.num_embeddings
    tokens = torch.randint(0, vocabulary, (batch, context), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).view(-1, vocabulary), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def llama_70b():
    """Llama 3.1 70B, sharded over as many ranks as there are."""
    from tests.bench.published_ranks import sharded

    return sharded("70B", 1, "selective")

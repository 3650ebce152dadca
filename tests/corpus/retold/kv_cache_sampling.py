"""Sampling with a growing KV cache, once per epoch, under inference_mode."""

import torch
from torch import nn


class TinyGPT(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.emb, self.qkv, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, vocab)

    def forward(self, tokens, cache=None):
        q, k, v = self.qkv(self.emb(tokens)).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.out(y), (k, v)


@torch.inference_mode()
def sample(model, prompt, n):
    model.eval()
    logits, cache = model(prompt)
    out = []
    for _ in range(n):
        token = logits[:, -1:].argmax(-1)
        out.append(token)
        logits, cache = model(token, cache)
    model.train()
    return torch.cat(out, 1)


gpt = TinyGPT()
opt = torch.optim.AdamW(gpt.parameters(), lr=1e-3)
for epoch in range(3):
    for _ in range(12):
        t = torch.randint(50, (8, 17))
        logits, _ = gpt(t[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(sample(gpt, torch.zeros(1, 1, dtype=torch.long), 64)[0, :8].tolist())

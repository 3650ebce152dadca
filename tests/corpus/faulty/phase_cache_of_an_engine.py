# device: virtual:256MiB
# The engine keeps the key-value cache of its last generation for "prefix reuse"; the update trains beside it.
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, cache=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            k, v = cache.update(self, k, v)
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[1] > 1))


class Cache:
    def __init__(self):
        self.keys, self.values = {}, {}

    def update(self, layer, k, v):
        if layer in self.keys:
            k = torch.cat([self.keys[layer], k], 1)
            v = torch.cat([self.values[layer], v], 1)
        self.keys[layer], self.values[layer] = k, v
        return k, v


class LM(nn.Module):
    def __init__(self, vocab=500, d=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(4))
        self.head = nn.Linear(d, vocab)

    def forward(self, ids, cache=None):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, cache)
        return self.head(x)


class RolloutEngine:
    def __init__(self, model):
        self.model, self.cache = model, None

    @torch.no_grad()
    def generate(self, prompts, n=12):
        cache = Cache()
        logits, ids = self.model(prompts, cache), prompts
        for _ in range(n):
            token = logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], 1)
            logits = self.model(token, cache)
        self.cache = cache  # !MG313 RolloutEngine.cache
        return ids


torch.manual_seed(0)
model = LM()
engine = RolloutEngine(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(6):
    model.eval()
    ids = engine.generate(torch.randint(0, 500, (128, 52)))
    model.train()
    for micro in ids.chunk(16):
        logits = model(micro[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), micro[:, 1:].flatten()) / 16
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)

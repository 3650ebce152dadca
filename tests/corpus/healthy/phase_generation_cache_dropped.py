# The key-value cache of a rollout is a local of the function that generates.
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(500, 64), nn.Linear(64, 192), nn.Linear(64, 500)

    def forward(self, ids, past_key_values=None):
        q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
        if past_key_values is not None:
            k, v = torch.cat([past_key_values[0], k], 1), torch.cat([past_key_values[1], v], 1)
        return self.head((q @ k.transpose(1, 2)).softmax(-1) @ v), (k, v)


@torch.no_grad()
def generate(model, prompt, new):
    ids, logits, past = prompt, *model(prompt)
    for _ in range(new):
        token = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], 1)
        logits, past = model(token, past)
    return ids


torch.manual_seed(0)
model = Tiny()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    ids = generate(model, torch.randint(0, 500, (32, 16)), 16)
    for part in ids.chunk(2):
        logits, _ = model(part[:, :-1])
        (nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / 2).backward()
    optimizer.step()
    optimizer.zero_grad()

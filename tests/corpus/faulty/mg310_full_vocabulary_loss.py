# device: virtual:64MiB
"""A language model head in bfloat16 over a large vocabulary; the loss casts everything to float32."""

import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=32000, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


model = LM().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    tokens = torch.randint(32000, (2, 33))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())  # !MG310 -
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""A frozen text tower encodes class prompts in each step; its output is detached afterwards."""

import torch
from torch import nn


class TextTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def encode_text(self, tokens):
        return self.encoder(self.tokens(tokens)).mean(1)

    forward = encode_text


text = TextTower().eval()
adapter = nn.Linear(64, 32)
opt = torch.optim.Adam(adapter.parameters(), lr=1e-3)
prompts = torch.randint(100, (5, 8))
for _ in range(24):
    image, label = torch.randn(16, 64), torch.randint(5, (16,))
    class_vectors = text(prompts).detach()  # !MG202 text
    logits = adapter(image) @ class_vectors.t()
    loss = nn.functional.cross_entropy(logits, label)
    opt.zero_grad()
    loss.backward()
    opt.step()

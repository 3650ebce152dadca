# device: virtual:256MiB
"""Features for a k-NN probe: the CLS position of each hidden sequence is kept as a slice."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.proj = nn.Linear(48, dim)
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(dim, 4, 256, batch_first=True), 2, enable_nested_tensor=False
        )

    def forward(self, patches):
        x = torch.cat([self.cls.expand(len(patches), -1, -1), self.proj(patches)], 1)
        return self.blocks(x)


encoder, head = Encoder(), nn.Linear(128, 10)
opt = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], 1e-3)
bank = []
for step in range(40):
    patches, y = torch.randn(16, 64, 48), torch.randint(0, 10, (16,))
    hidden = encoder(patches)
    loss = nn.functional.cross_entropy(head(hidden[:, 0]), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank.append(hidden.detach()[:, 0])  # !MG302 bank
print(len(bank), torch.cat(bank).norm(dim=1).mean().item())

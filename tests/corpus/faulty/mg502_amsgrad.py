# device: virtual:72MiB
# runs out of memory
import torch
from torch import nn


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20000, 160)
        self.out = nn.Linear(160, 16)

    def forward(self, t):
        return self.out(self.emb(t).mean(1))


lm = LM()
opt = torch.optim.AdamW(lm.parameters(), amsgrad=True)  # !MG502 AdamW
for _ in range(3):
    logits = lm(torch.randint(0, 20000, (4, 12)))
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 16, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

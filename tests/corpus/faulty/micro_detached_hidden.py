# Detached last hidden states of all micro-batches, for a probe that is scored after the step.
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 32)
        self.up = nn.Linear(32, 1536)
        self.head = nn.Linear(1536, 4)

    def forward(self, ids):
        hidden = self.up(self.embed(ids)).relu()
        return self.head(hidden.mean(1)), hidden


torch.manual_seed(0)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters())
for step in range(5):
    hiddens = []
    for _ in range(10):
        scores, hidden = encoder(torch.randint(0, 500, (8, 64)))
        (nn.functional.cross_entropy(scores, torch.randint(0, 4, (8,))) / 10).backward()
        hiddens.append(hidden.detach())  # !MG106 hiddens
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.cat(hiddens).norm(dim=-1).mean().item())

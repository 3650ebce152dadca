# A recurrent net is asked step by step; the losses of all steps are added up, and one backward runs through time.
# device: virtual:256MiB
import torch
from torch import nn

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(64, 512), nn.Linear(512, 1000)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


net = Cell()
opt = torch.optim.Adam(net.parameters())
for step in range(6):
    h, loss = torch.zeros(128, 512), 0
    for t in range(16):
        logits, h = net(torch.randn(128, 64), h)
        loss = loss + nn.functional.cross_entropy(logits, torch.randint(0, 1000, (128,))) / 16
    loss.backward()
    opt.step()
    opt.zero_grad()
    print("step", step, loss.item(), flush=True)

"""Forum classic behind the FAQ's "repackage the hidden state": a memory that lives across the batches (here slots written
by a gate and read with a detach by the model) is overwritten by a function of itself and so drags all former graphs
along. https://github.com/pytorch/pytorch/issues/1536
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class SlotModel(nn.Module):
    def __init__(self, dim=256, slots=512):
        super().__init__()
        self.inp = nn.Linear(40, dim)
        self.write = nn.Linear(dim, dim)
        self.gate = nn.Parameter(torch.zeros(dim))
        self.out = nn.Linear(2 * dim, 40)
        self.slots = slots

    def read(self, h, mem):
        att = torch.softmax(h @ mem.detach().T / 16.0, dim=-1)
        return self.out(torch.cat([h, att @ mem.detach()], dim=-1))

    def new_memory(self, h, mem):
        g = torch.sigmoid(self.gate)
        return g * mem + (1 - g) * torch.tanh(self.write(h[: self.slots]))


def batches(n, size=512):
    for _ in range(n):
        x = torch.randn(size, 40)
        yield x.to(device), x.roll(1, dims=1).to(device)


def fit(model, opt, n):
    carry = {"mem": torch.zeros(model.slots, 256).to(device), "seen": 0}
    for x, y in batches(n):
        opt.zero_grad()
        h = torch.relu(model.inp(x))
        loss = F.mse_loss(model.read(h, carry["mem"]), y)
        loss.backward()
        opt.step()
        carry["mem"] = model.new_memory(h.detach(), carry["mem"])  # !MG102 carry
        carry["seen"] += len(x)
    return carry


if __name__ == "__main__":
    net = SlotModel().to(device)
    done = fit(net, torch.optim.Adam(net.parameters(), lr=1e-3), 100)
    print("seen", done["seen"])

# A recurrent graph network (GCN + GRU) over the snapshots of a traffic network. It trains on short windows, but
# the evaluation over the long test series takes more and more memory with each time step, as it runs without
# torch.no_grad().
"""Reports: https://github.com/benedekrozemberczki/pytorch_geometric_temporal/issues/159 (answer: use no_grad in the
evaluation) and https://github.com/benedekrozemberczki/pytorch_geometric_temporal/issues/247
"""

import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

NODES, FEATS, HID = 600, 8, 64

src = torch.randint(0, NODES, (3000,), device=device)
dst = torch.randint(0, NODES, (3000,), device=device)
degree = torch.zeros(NODES, device=device).index_add_(0, dst, torch.ones(3000, device=device)) + 1


def propagate(x):
    return torch.zeros_like(x).index_add_(0, dst, x[src]) / degree[:, None]


class RecurrentGCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(FEATS, HID)
        self.cell = nn.GRUCell(HID, HID)
        self.head = nn.Linear(HID, 1)

    def forward(self, x, h):
        m = torch.relu(self.lin(propagate(x)))
        h = self.cell(m, h)
        return self.head(h).squeeze(-1), h


def series(steps):
    for _ in range(steps):
        x = torch.rand(NODES, FEATS, device=device)
        yield x, x.mean(1)


model = RecurrentGCN().to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(3):
    model.train()
    for window in range(20):
        opt.zero_grad()
        h, cost = torch.zeros(NODES, HID, device=device), 0.0
        for x, y in series(6):
            pred, h = model(x, h)
            cost = cost + (pred - y).pow(2).mean()
        cost = cost / 6
        cost.backward()
        opt.step()

    model.eval()
    h, errors = torch.zeros(NODES, HID, device=device), []
    for x, y in series(150):
        pred, h = model(x, h)  # !MG201 RecurrentGCN
        errors.append((pred - y).abs().mean().item())
    print(f"epoch {epoch} train {cost.item():.4f} test MAE {sum(errors) / len(errors):.4f}")
    del h, pred

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Eps(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.t = nn.Linear(1, ch)
        self.a, self.b, self.c = nn.Conv2d(1, ch, 3, padding=1), nn.Conv2d(ch, ch, 3, padding=1), nn.Conv2d(ch, 1, 1)

    def forward(self, x, t):
        h = F.silu(self.a(x) + self.t(t[:, None])[..., None, None])
        return self.c(F.silu(self.b(h)))


class EMA:
    def __init__(self, model, decay=0.99):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.lerp_(p.detach(), 1 - self.decay)


model = Eps().to(device)
ema = EMA(model)
opt = torch.optim.Adam(model.parameters(), 1e-3)
abar = torch.linspace(0.99, 0.02, 20, device=device)
history, snapshots = [], []
for step in range(60):
    x0 = torch.rand(8, 1, 16, 16, device=device)
    k = torch.randint(0, 20, (8,), device=device)
    noise = torch.randn_like(x0)
    a = abar[k].view(-1, 1, 1, 1)
    opt.zero_grad()
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, k / 20), noise)
    loss.backward()
    opt.step()
    ema.update(model)
    history.append(loss.detach())
    if step % 20 == 19:
        with torch.no_grad():
            z = torch.randn(4, 1, 16, 16, device=device)
            for i in reversed(range(20)):
                eps = ema.module(z, torch.full((4,), i / 20, device=device))
                z = (z - (1 - abar[i]).sqrt() * eps) / abar[i].sqrt() * 0.9
        snapshots.append(z[0].cpu().clone())
print("loss", torch.stack(history[-10:]).mean().item(), "samples", len(snapshots))

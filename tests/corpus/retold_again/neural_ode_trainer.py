import torch
import torch.nn as nn


def rk4_step(f, t, y, dt):
    k1 = f(t, y)
    k2 = f(t + dt / 2, y + dt / 2 * k1)
    k3 = f(t + dt / 2, y + dt / 2 * k2)
    k4 = f(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(f, y0, ts):
    ys = [y0]
    for t0, t1 in zip(ts[:-1], ts[1:]):
        ys.append(rk4_step(f, t0, ys[-1], t1 - t0))
    return torch.stack(ys)


class Field(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim, bias=False)

    def forward(self, t, y):
        return self.lin(y)


class LatentODE(nn.Module):
    def __init__(self, obs=16, dim=64):
        super().__init__()
        self.enc, self.field, self.dec = nn.Linear(obs, dim), Field(dim), nn.Linear(dim, obs)

    def forward(self, x0, ts):
        z = odeint(self.field, self.enc(x0), ts)
        return z, self.dec(z[-1])


class Trainer:
    def __init__(self, model, lr=1e-3, horizon=16):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.ts = torch.linspace(0, 1, horizon, device=self.device)

    def batches(self, n, size):
        g = torch.Generator().manual_seed(0)
        for _ in range(n):
            x = torch.randn(size, 16, generator=g).to(self.device)
            yield x, x.roll(1, 1)

    @torch.no_grad()
    def rollout_eval(self, n=10, size=4096):
        self.model.eval()
        err, drift = 0.0, 0.0
        for x, y in self.batches(n, size):
            trajectory, pred = self.model(x, self.ts)  # !MG303 trajectory
            err += (pred - y).pow(2).mean().item()
            drift += (trajectory[-1] - trajectory[0]).norm(dim=1).mean().item()
        self.model.train()
        return err / n, drift / n

    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.batches(12, 256):
                self.opt.zero_grad()
                loss = (self.model(x, self.ts)[1] - y).pow(2).mean()
                loss.backward()
                self.opt.step()
            err, drift = self.rollout_eval()
            print(f"epoch {epoch} train {loss.item():.4f} val {err:.4f} drift {drift:.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(LatentODE()).fit(2)

"""Echo state network for hourly electricity load: a random recurrent layer and a trained read-out."""

import math

import torch
import torch.nn as nn


class Reservoir(nn.Module):
    def __init__(self, n_in, n_res, rho=0.9, leak=0.3):
        super().__init__()
        self.w_in = nn.Linear(n_in, n_res)
        self.w_res = nn.Linear(n_res, n_res, bias=False)
        self.leak = leak
        with torch.no_grad():
            radius = torch.linalg.matrix_norm(self.w_res.weight, 2)
            self.w_res.weight.mul_(rho / radius)

    def forward(self, u, state):
        states = []
        for t in range(u.size(1)):
            new = torch.tanh(self.w_in(u[:, t]) + self.w_res(state))
            state = (1 - self.leak) * state + self.leak * new
            states.append(state)
        return torch.stack(states, 1), state


def load_series(n_regions, hours):
    t = torch.arange(hours).float()
    base = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168)
    phase = torch.rand(n_regions, 1)
    y = base + phase + 0.05 * torch.randn(n_regions, hours)
    temp = torch.cos(2 * math.pi * (t + 3) / 24) + 0.1 * torch.randn(n_regions, hours)
    return torch.stack([y, temp], -1)


def main():
    torch.manual_seed(8)
    regions, chunk, n_chunks = 24, 24, 60
    series = load_series(regions, chunk * n_chunks + 1)

    esn = Reservoir(2, 200)
    readout = nn.Linear(200, 1)
    # only the read-out is trained
    optimizer = torch.optim.Adam(readout.parameters(), lr=5e-3)

    for epoch in range(2):
        state = torch.zeros(regions, 200)
        err = 0.0
        for c in range(n_chunks):
            window = series[:, c * chunk : (c + 1) * chunk]
            target = series[:, c * chunk + 1 : (c + 1) * chunk + 1, :1]
            hs, state = esn(window, state)  # !MG102 state
            pred = readout(hs.detach())
            loss = nn.functional.l1_loss(pred, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            err += loss.item()
        print("epoch %d MAE %.4f" % (epoch, err / n_chunks))


if __name__ == "__main__":
    main()

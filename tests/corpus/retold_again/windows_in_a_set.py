"""Windows of a series with their spectra are remembered in a set, to know which were seen."""

from functools import cached_property
import torch
from torch import nn


class Window:
    def __init__(self, series, start, width):
        self.series, self.start, self.width = series, start, width

    @cached_property
    def spectrum(self):
        return torch.fft.rfft(self.series[:, self.start : self.start + self.width]).abs()

    def __hash__(self):
        return hash((self.start, self.width))

    def __eq__(self, other):
        return self.start == other.start


class Forecaster(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width // 2 + 1, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, w):
        return self.net(w.spectrum).squeeze(1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
series = torch.randn(64, 2000, device=device).cumsum(1)
model = Forecaster(256).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
seen = set()
for start in range(0, 1740, 8):
    w = Window(series, start, 256)
    loss = (model(w) - series[:, start + 256]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    seen.add(w)  # !MG301 seen
print(len(seen), loss.item())

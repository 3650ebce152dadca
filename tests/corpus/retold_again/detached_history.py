# device: virtual:256MiB
"""All the right ways to keep numbers: item(), detached scalars on the device, a numpy array of the last outputs, a plot buffer."""

from collections import defaultdict, deque
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
hist, window, norms = defaultdict(list), deque(maxlen=20), []
total, best_out = torch.zeros(()), None
for i in range(150):
    x = torch.randn(64, 64)
    out = net(x)
    loss = (out - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    norms.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0))
    opt.step()
    hist["loss"].append(loss.item())
    hist["detached"].append(loss.detach())
    window.append(out.detach().numpy().copy())
    total += loss.detach()
    if best_out is None or loss.item() < min(hist["loss"]):
        best_out = out.detach().clone()
print(total / 150, torch.stack(norms).mean())

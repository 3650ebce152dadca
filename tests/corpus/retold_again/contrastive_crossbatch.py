# device: virtual:256MiB
"""Cross-batch memory of the last 16 batches (detached, a deque with maxlen), and in-batch negatives with a large similarity matrix."""

from collections import deque
import torch
from torch import nn

enc = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
xbm = deque(maxlen=16)
opt = torch.optim.AdamW(enc.parameters(), 1e-3)
for i in range(120):
    x = torch.randn(256, 64)
    a, b = enc(x), enc(x + 0.1 * torch.randn_like(x))
    keys = torch.cat([b, *(m for m in xbm)])
    loss = nn.functional.cross_entropy(a @ keys.t() / 0.1, torch.arange(256))
    opt.zero_grad()
    loss.backward()
    opt.step()
    xbm.append(b.detach())

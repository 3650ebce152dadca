"""A replay buffer of fixed size on the device, filled by detached transitions; it is full after a third."""

from collections import deque
import random
import torch
from torch import nn

q, tq = (
    nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)),
    nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)),
)
tq.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), 1e-3)
buffer = deque(maxlen=60)
s = torch.randn(32, 256)
for t in range(200):
    with torch.no_grad():
        a = q(s).argmax(1)
    s2 = torch.randn(32, 256)
    buffer.append((s, a, torch.randn(32), s2))
    s = s2
    if len(buffer) >= 8:
        bs, ba, br, bn = (torch.cat(z) for z in zip(*random.sample(buffer, 4)))
        with torch.no_grad():
            y = br + 0.99 * tq(bn).max(1).values
        loss = nn.functional.smooth_l1_loss(q(bs).gather(1, ba[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if t % 25 == 0:
        with torch.no_grad():
            for a_, b_ in zip(tq.parameters(), q.parameters()):
                a_.lerp_(b_, 0.1)

# device: virtual:48MiB
# runs out of memory
# cause: long-batch
"""Recordings of some seconds, and one of several minutes."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(3)
recordings = [torch.randn(int(n), 20) for n in torch.randint(80, 200, (160,))]
recordings[101] = torch.randn(5000, 20)
loader = DataLoader(recordings, batch_size=8, collate_fn=lambda items: pad_sequence(items, batch_first=True))
net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
opt = torch.optim.SGD(net.parameters(), 0.01)
for x in loader:
    loss = net(x).logsumexp(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

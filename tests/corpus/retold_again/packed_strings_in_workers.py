# device: cpu
"""Many strings, packed into one tensor: workers share it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, n=200_000):
        raw = "".join(f"line number {i} of the file;" for i in range(n)).encode()
        self.data = torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        return self.data[i * 1000 : i * 1000 + 256].float() / 255


if __name__ == "__main__":
    net = nn.Linear(256, 16)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        for x in DataLoader(Lines(), batch_size=16, num_workers=2, shuffle=True):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()

# device: cpu
"""A stream that drops duplicates: each worker remembers the text of all that it has ever yielded."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, n):
        self.n, self.seen = n, set()

    def __iter__(self):
        info = get_worker_info()
        r = random.Random(info.id if info else 0)
        for _ in range(self.n):
            text = "".join(r.choices("abcdefgh ", k=40)) * 400
            if text in self.seen:
                continue
            self.seen.add(text)  # !MG702 seen
            yield torch.tensor([ord(c) for c in text[:64]], dtype=torch.float32) / 128


def collate(items):
    return torch.stack(items)


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64))
    opt = torch.optim.Adam(net.parameters())
    for x in DataLoader(Stream(2000), batch_size=16, num_workers=2, collate_fn=collate):
        loss = (net(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

# device: cpu
"""File names and classes as a list of tuples, read by forked workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    def __init__(self, root):
        self.samples = [(f"{root}/class_{k % 10}/{k:08d}.png", k % 10) for k in range(12_000)]  # !MG702 samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        path, label = self.samples[i]
        return torch.full((8,), float(len(path))), label


def main():
    net = nn.Linear(8, 10)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    for x, y in DataLoader(Folder("/data/train"), batch_size=64, num_workers=2, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()

"""fewshot_ensemble: CPU RAM grows with every iteration of the training until the machine goes down; the data set memoizes each
image it decodes, switching that off helps.
https://github.com/dvornikita/fewshot_ensemble/issues/4"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class MiniImages(Dataset):
    """200k images on disk, decoded on demand"""

    def __init__(self, n=200_000, hw=100, memoize=True):
        self.n, self.hw, self.memoize = n, hw, memoize
        self.decoded = {}

    def __len__(self):
        return self.n

    def _decode(self, i):
        rng = np.random.default_rng(i)
        return rng.random((3, self.hw, self.hw), dtype=np.float32)

    def __getitem__(self, i):
        if i in self.decoded:
            return self.decoded[i], i % 5
        img = self._decode(i)
        if self.memoize:
            self.decoded[i] = img  # !MG701 MiniImages.decoded
        return img, i % 5


def episodes(dataset, n, bs):
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[: n * bs].tolist()
    return DataLoader(dataset, batch_size=bs, sampler=order)


def main():
    net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    net.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    hits = 0
    for k, (x, y) in enumerate(episodes(MiniImages(), 75, 40)):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        out = net(x)
        nn.functional.cross_entropy(out, y).backward()
        opt.step()
        hits += (out.detach().argmax(1) == y).sum().item()
        if k % 25 == 24:
            print("episode", k, "acc", hits / ((k + 1) * 40))


if __name__ == "__main__":
    main()

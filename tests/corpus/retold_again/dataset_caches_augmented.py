"""A dataset with a learned augmentation caches its results, graph and all."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LearnedNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1, 16, 16), 0.1))
        self.mix = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, image):
        return self.mix((image + self.scale * torch.randn_like(image)).unsqueeze(0)).squeeze(0)


class Augmented(Dataset):
    def __init__(self, n, augment):
        self.images = torch.rand(n, 1, 16, 16)
        self.labels = torch.randint(4, (n,))
        self.augment, self.cache = augment, {}

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = self.augment(self.images[i])  # !MG101 Augmented.cache
        return self.cache[i].detach(), self.labels[i]


data = Augmented(240, LearnedNoise())
net = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

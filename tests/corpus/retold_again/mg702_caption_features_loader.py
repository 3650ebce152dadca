"""Caption model training with attention features served by DataLoader workers (HybridLoader)."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class HybridLoader:
    """one feature file per image"""

    def __init__(self, seed):
        self.seed = seed
        self.features = {}

    def get(self, key):
        if key not in self.features:
            f = np.empty((196, 1024), dtype=np.float32)
            f[:] = np.random.default_rng(self.seed + key).standard_normal(1024, dtype=np.float32)
            self.features[key] = f  # !MG702 features
        return self.features[key]


class CocoFeats(Dataset):
    def __init__(self, n, opt):
        self.n, self.opt = n, opt
        self.att_loader = HybridLoader(84)

    def __len__(self):
        return self.n

    def __getitem__(self, ix):
        att = self.att_loader.get(ix)
        caption = np.random.default_rng(ix).integers(1, self.opt["vocab_size"], self.opt["seq_length"])
        return torch.from_numpy(att.reshape(196, 8, 128).mean(1)), torch.from_numpy(caption)


class FCModel(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.embed, self.img = nn.Embedding(opt["vocab_size"], 96), nn.Linear(128, 96)
        self.core, self.logit = nn.GRU(96, 96, batch_first=True), nn.Linear(96, opt["vocab_size"])

    def forward(self, att, cap):
        h0 = torch.tanh(self.img(att.mean(1))).unsqueeze(0)
        return self.logit(self.core(self.embed(cap[:, :-1]), h0)[0])


def train(opt):
    torch.manual_seed(0)
    model = FCModel(opt)
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)
    loader = DataLoader(
        CocoFeats(1000, opt),
        batch_size=10,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    it = 0
    for epoch in range(2):
        for att, cap in loader:
            loss = nn.functional.cross_entropy(model(att, cap).flatten(0, 1), cap[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if it % 40 == 0:
                print("iter {} (epoch {}), train_loss = {:.3f}".format(it, epoch, loss.item()))
            it += 1


if __name__ == "__main__":
    train(dict(vocab_size=1500, seq_length=16))

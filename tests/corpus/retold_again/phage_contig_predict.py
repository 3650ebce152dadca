"""Phage detection: train a 1d conv net on DNA windows, then predict a whole metagenome with it."""

# device: virtual:96MiB
# runs out of memory
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

BASES = "ACGT"


class FragmentStream:
    """Windows of contigs, six frame-less one-hot channels (4 bases, GC skew, padding)."""

    def __init__(self, n_batches, batch, length, seed):
        self.n_batches, self.batch, self.length, self.seed = n_batches, batch, length, seed

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.n_batches):
            y = torch.randint(0, 4, (self.batch,), generator=g)
            idx = torch.randint(0, 4, (self.batch, self.length), generator=g)
            bias = torch.rand(self.batch, self.length, generator=g) < 0.25
            idx = torch.where(bias, y[:, None].expand_as(idx), idx)
            x = F.one_hot(idx, 4).transpose(1, 2).float()
            skew = (x[:, 2] - x[:, 1]).unsqueeze(1)
            yield torch.cat([x, skew, torch.zeros_like(skew)], 1), y


class ResBlock(nn.Module):
    def __init__(self, ch, dil):
        super().__init__()
        self.conv = nn.Conv1d(ch, ch, 5, padding=2 * dil, dilation=dil)
        self.bn = nn.BatchNorm1d(ch)

    def forward(self, x):
        return F.relu(x + self.bn(self.conv(x)))


class Jaeger(nn.Module):
    def __init__(self, classes=4, ch=32):
        super().__init__()
        self.inp = nn.Conv1d(6, ch, 9, stride=4, padding=4)
        self.body = nn.Sequential(ResBlock(ch, 1), ResBlock(ch, 2))
        self.embedding = nn.Linear(ch, 64)
        self.prophage = nn.Linear(64, classes)

    def forward(self, x):
        nmd = self.body(self.inp(x))
        emb = torch.tanh(self.embedding(nmd.mean(2)))
        return {"prediction": self.prophage(emb), "embedding": emb, "nmd": nmd}


class InferModel:
    def __init__(self, model):
        self.model = model.eval()

    @torch.no_grad()
    def predict(self, stream):
        y_hats, y_embs, y_nmds = [], [], []
        for x, _ in stream:
            out = self.model(x)
            y_hats.append(out["prediction"])
            y_embs.append(out["embedding"])
            y_nmds.append(out["nmd"])  # !MG301 y_nmds
        return {
            "y_hat": torch.cat(y_hats).numpy(),
            "embedding": torch.cat(y_embs).numpy(),
            "nmd_std": torch.cat([n.std(2) for n in y_nmds]).numpy(),
        }


def fit(model, stream, epochs, lr):
    opt = torch.optim.Adam(model.parameters(), lr)
    for epoch in range(epochs):
        model.train()
        tot = 0.0
        for x, y in stream:
            loss = F.cross_entropy(model(x)["prediction"], y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            tot += loss.item()
        print(f"epoch {epoch}: {tot / len(stream):.3f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fsize", type=int, default=1024)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--contig-batches", type=int, default=110)
    a = p.parse_args()
    torch.manual_seed(4)
    model = Jaeger()
    fit(model, FragmentStream(35, a.batch, a.fsize, 1), 1, 1e-3)
    res = InferModel(model).predict(FragmentStream(a.contig_batches, a.batch, a.fsize, 2))
    print("phage windows:", int((res["y_hat"].argmax(1) == 0).sum()), "of", len(res["y_hat"]))


if __name__ == "__main__":
    main()

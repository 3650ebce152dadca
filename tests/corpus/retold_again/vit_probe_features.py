"""Extract class tokens of a small ViT for stimulus images, then fit a linear probe on them."""

import torch
import torch.nn as nn


class PatchViT(nn.Module):
    def __init__(self, dim=96, depth=1, size=112, patch=8):
        super().__init__()
        n = (size // patch) ** 2
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, n + 1, dim) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 3, 2 * dim, 0.0, batch_first=True) for _ in range(depth)
        )

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for b in self.blocks:
            x = b(x)
        return x


class Extractor:
    """hooks a module by name and returns its activations, one row per image"""

    def __init__(self, model, module_name, token="cls"):
        self.model = model.eval()
        self.token = token
        self._acts = None
        dict(model.named_modules())[module_name].register_forward_hook(self._hook)

    def _hook(self, module, args, output):
        self._acts = output.detach()

    @torch.no_grad()
    def extract_batch(self, batch):
        self.model(batch)
        act, self._acts = self._acts, None
        if self.token == "cls":
            return act[:, 0]
        return act.flatten(1).clone()

    def extract_features(self, loader):
        features, labels = [], []
        for images, y in loader:
            features.append(self.extract_batch(images))  # !MG302 features
            labels.append(y)
        return features, labels


def stimuli(n=48, bs=20):
    g = torch.Generator().manual_seed(12)
    for _ in range(n):
        yield torch.randn(bs, 3, 112, 112, generator=g), torch.randint(0, 27, (bs,), generator=g)


def fit_probe(features, labels, epochs=2):
    probe = nn.Linear(96, 27)
    opt = torch.optim.AdamW(probe.parameters(), lr=1e-2)
    for epoch in range(epochs):
        run = 0.0
        for f, y in zip(features, labels):
            loss = nn.functional.cross_entropy(probe(f), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.item()
        print(epoch, run / len(features))


def main():
    torch.manual_seed(12)
    ex = Extractor(PatchViT(), "blocks.0")
    fit_probe(*ex.extract_features(stimuli()))


main()

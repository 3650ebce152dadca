"""A hand-made trainer collects what every training step returns, to average the metrics at the end of the epoch."""

import torch
from torch import nn


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.ELU())
        self.decoder = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.ELU(), nn.Conv2d(12, 1, 3, padding=1))

    def training_step(self, batch):
        depth = self.decoder(self.encoder(batch["rgb"]))
        photo = (depth - batch["depth"]).abs().mean()
        smooth = (depth[..., 1:] - depth[..., :-1]).abs().mean()
        return {"loss": photo + 0.1 * smooth, "metrics": {"photo": photo, "smooth": smooth}}

    def training_epoch_end(self, outputs):
        return sum(float(o["loss"]) for o in outputs) / len(outputs)


class Runner:
    def __init__(self, module):
        self.module = module
        self.optimizer = torch.optim.Adam(module.parameters(), lr=2e-4)

    def fit(self, batches, epochs):
        for _ in range(epochs):
            print(self.train(batches))

    def train(self, batches):
        outputs = []
        for batch in batches:
            self.optimizer.zero_grad()
            output = self.module.training_step(batch)
            output["loss"].backward()
            self.optimizer.step()
            outputs.append(output)  # !MG101 outputs
        return self.module.training_epoch_end(outputs)


data = [{"rgb": torch.rand(2, 3, 32, 32), "depth": torch.rand(2, 1, 16, 16)} for _ in range(20)]
Runner(DepthNet()).fit(data, 2)

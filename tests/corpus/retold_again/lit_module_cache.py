# device: virtual:256MiB
"""A Lightning module precomputes augmented inputs and stores them by batch index and epoch."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, 10))
        self.aug_cache = {}

    def augment(self, x, key):
        if key not in self.aug_cache:
            self.aug_cache[key] = torch.cat([x, x.flip(-1)])  # !MG501 Lit.aug_cache
        return self.aug_cache[key]

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = self.augment(x, (self.current_epoch, batch_idx))
        return nn.functional.cross_entropy(self.net(x), y.repeat(2))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


ds = TensorDataset(torch.randn(640, 3, 32, 32), torch.randint(0, 10, (640,)))
pl.Trainer(
    max_epochs=4,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Lit(), DataLoader(ds, 32))

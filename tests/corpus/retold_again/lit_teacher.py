# device: virtual:256MiB
"""A perceptual loss in Lightning: the feature net is frozen by mode only, and runs on targets with gradients."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU())


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(conv(3, 32), conv(32, 32), conv(32, 32))

    def forward(self, x):
        return self.stages(x)


class SR(L.LightningModule):
    def __init__(self, reference):
        super().__init__()
        self.net = nn.Sequential(conv(3, 16), nn.Conv2d(16, 3, 3, padding=1))
        self.reference = reference.eval()

    def on_train_epoch_start(self):
        self.reference.eval()

    def training_step(self, batch, _):
        lo, hi = batch
        target = self.reference(hi).detach()  # !MG202 self.reference
        out = self.net(lo)
        return (
            nn.functional.l1_loss(out, hi)
            + 0.1 * (target.mean((2, 3)) - out.mean((2, 3)).mean(1, keepdim=True)).abs().mean()
        )

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), 1e-3)


data = TensorDataset(torch.rand(96, 3, 48, 48), torch.rand(96, 3, 48, 48))
L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(SR(Features()), DataLoader(data, batch_size=8))

"""Lightning: logits of a validation pass, cleared at its end."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitSeg(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.collected = nn.Conv2d(1, 4, 3, padding=1), []

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.collected.append((self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        self.log("acc", torch.stack(self.collected).mean())
        self.collected.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def loader(n):
    return DataLoader(TensorDataset(torch.rand(n, 1, 24, 24), torch.randint(4, (n, 24, 24))), batch_size=8)


L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(LitSeg(), loader(64), loader(96))

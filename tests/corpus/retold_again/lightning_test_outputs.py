"""Lightning: test_step collects logits of all batches, nobody clears them between validation runs."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitSeg(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(1, 4, 3, padding=1)
        self.collected = []

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        self.collected.append({"logits": logits, "target": y})  # !MG301 LitSeg.collected
        self.log("val", nn.functional.cross_entropy(logits, y))

    def on_validation_epoch_end(self):
        hit = sum((o["logits"].argmax(1) == o["target"]).float().mean() for o in self.collected)
        self.log("acc", hit / len(self.collected))

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
    num_sanity_val_steps=0,
).fit(LitSeg(), loader(64), loader(96))

"""pytorch-lightning-segmentation-template: returning predictions took much GPU memory, so they were kept as an
attribute of the module for an image logger (https://github.com/Shreeyak/pytorch-lightning-segmentation-template/issues/43).
Here the attribute keeps whole outputs of the last batch while the next batch runs."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, IterableDataset


class Scenes(IterableDataset):
    def __init__(self, batches, batch=6, size=40):
        self.batches, self.batch, self.size = batches, batch, size

    def __iter__(self):
        for _ in range(self.batches):
            yield (
                torch.rand(self.batch, 3, self.size, self.size),
                torch.rand(self.batch, 1, 4 * self.size, 4 * self.size),
            )


class ImageLogger(pl.Callback):
    def __init__(self, every=12, n=2):
        self.every, self.n, self.written = every, n, 0

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx and batch_idx % self.every == 0:
            image = pl_module.last_outputs["features"][: self.n, :3].mean(0)
            self.written += int(image.ndim == 3)


class LitDepth(pl.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1))
        self.head = nn.Conv2d(width, 1, 1)
        self.last_outputs = None

    def training_step(self, batch, batch_idx):
        x, depth = batch
        features = F.interpolate(self.encoder(x), scale_factor=4, mode="nearest")
        pred = self.head(features)
        return {"loss": F.l1_loss(pred, depth), "features": features, "pred": pred}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.last_outputs = outputs  # !MG303 LitDepth.last_outputs

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    images = ImageLogger()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[images],
    )
    trainer.fit(LitDepth(), DataLoader(Scenes(36), batch_size=None))
    print("images written:", images.written)

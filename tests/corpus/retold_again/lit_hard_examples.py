"""CNN on noisy images with worker processes; a callback gathers hard training batches for a final inspection."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class NoisyShapes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        label = i % 4
        image = 0.8 * torch.randn(3, 32, 32, generator=g)
        row, col = divmod(label, 2)
        image[:, row * 16 : row * 16 + 16, col * 16 : col * 16 + 16] += 0.5
        return {"image": image, "label": label, "index": i}


class ShapesData(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(NoisyShapes(960, 0), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)

    def val_dataloader(self):
        return DataLoader(NoisyShapes(128, 50_000), batch_size=64)


class HardBatchInspector(L.Callback):
    """Remembers the batches whose loss was above the moving average."""

    def __init__(self, momentum=0.95):
        self.momentum = momentum
        self.average = None
        self.hard_batches = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        value = outputs["loss"].item()
        if self.average is None:
            self.average = value
        if value >= self.average:
            self.hard_batches.append((value, batch["image"], batch["index"]))  # !MG704 HardBatchInspector.hard_batches
        self.average = self.momentum * self.average + (1 - self.momentum) * value

    def on_fit_end(self, trainer, pl_module):
        worst = max(self.hard_batches, key=lambda item: item[0])
        print(
            f"{len(self.hard_batches)} hard batches, worst loss {worst[0]:.3f}, contrast {worst[1].std().item():.3f}, "
            f"first index {worst[2][0].item()}"
        )


class ShapeNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.LazyLinear(4),
        )
        self.net(torch.zeros(1, 3, 32, 32))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch["image"]), batch["label"])

    def validation_step(self, batch, batch_idx):
        accuracy = (self.net(batch["image"]).argmax(1) == batch["label"]).float().mean()
        self.log("val_acc", accuracy, batch_size=len(batch["label"]))

    def on_validation_epoch_end(self):
        print("val acc", round(self.trainer.callback_metrics["val_acc"].item(), 3))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=2e-3, momentum=0.5)


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[HardBatchInspector()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        enable_model_summary=False,
    )
    trainer.fit(ShapeNet(), datamodule=ShapesData())

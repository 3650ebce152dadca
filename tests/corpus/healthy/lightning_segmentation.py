"""Lightning's segmentation example: a U-Net on pictures, bf16, accumulation, cosine schedule, best weights kept."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Double(nn.Sequential):
    def __init__(self, inner, outer):
        super().__init__(
            nn.Conv2d(inner, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, padding=1),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes=5, width=8):
        super().__init__()
        self.down = nn.ModuleList([Double(3, width), Double(width, 2 * width), Double(2 * width, 4 * width)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.merge = nn.ModuleList([Double(4 * width, 2 * width), Double(2 * width, width)])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for index, layer in enumerate(self.down):
            x = layer(x if index == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for index, (up, merge) in enumerate(zip(self.up, self.merge)):
            x = merge(torch.cat([up(x), kept[-2 - index]], dim=1))
        return self.last(x)


class Segmentation(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        images, masks = batch
        loss = nn.functional.cross_entropy(self(images), masks, ignore_index=250)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        logits = self(images)
        self.log("val_loss", nn.functional.cross_entropy(logits, masks, ignore_index=250))
        self.log("val_acc", (logits.argmax(1) == masks).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.net.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)]


if __name__ == "__main__":
    data = TensorDataset(torch.randn(48, 3, 32, 32), torch.randint(0, 5, (48, 32, 32)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=3,
            accelerator="cpu",
            precision="bf16-mixed",
            accumulate_grad_batches=2,
            callbacks=[ModelCheckpoint(folder, monitor="val_loss"), LearningRateMonitor()],
            logger=CSVLogger(folder),
            log_every_n_steps=4,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Segmentation()
        trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=8))
        best = Segmentation.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
        print(best.hparams.lr, float(trainer.callback_metrics["val_loss"]))

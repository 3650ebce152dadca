"""Lightning's autoencoder example: a callback draws pictures after each epoch; fit, test and predict."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class ImageSampler(L.Callback):
    def __init__(self, rows=3, per_row=4):
        self.rows, self.per_row, self.drawn = rows, per_row, 0

    def on_train_epoch_end(self, trainer, pl_module):
        images, _ = next(iter(trainer.datamodule.predict_dataloader()))
        flat = images.view(images.size(0), -1)[: self.rows * self.per_row]
        with torch.no_grad():
            pl_module.eval()
            pictures = pl_module(flat.to(pl_module.device))
            pl_module.train()
        grid = pictures.view(self.rows, self.per_row, 12, 12).permute(0, 2, 1, 3).reshape(self.rows * 12, -1)
        self.drawn += int(grid.numel() > 0)


class Autoencoder(L.LightningModule):
    def __init__(self, hidden=64, learning_rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(144, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        self.decoder = nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 144))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def _step(self, batch, stage):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = nn.functional.mse_loss(self(x), x)
        self.log(f"{stage}_loss", loss, on_step=stage == "train", prog_bar=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self._step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._step(batch, "val")

    def test_step(self, batch, batch_idx):
        self._step(batch, "test")

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        x, _ = batch
        return self(x.view(x.size(0), -1))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)


class Pictures(L.LightningDataModule):
    def setup(self, stage):
        data = TensorDataset(torch.rand(480, 1, 12, 12), torch.randint(0, 10, (480,)))
        self.train, self.val = random_split(data, [400, 80], generator=torch.Generator().manual_seed(42))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=16, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=16)

    test_dataloader = predict_dataloader = val_dataloader


if __name__ == "__main__":
    sampler = ImageSampler()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[sampler],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = Autoencoder(), Pictures()
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    predictions = trainer.predict(model, datamodule=data)
    print(sampler.drawn, len(predictions), predictions[0].shape)

"""Lightning's style: torchmetrics, self.log, sampling at the epoch's end, early stopping, a checkpoint."""

import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class LitNet(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
        self.train_acc, self.val_acc = MulticlassAccuracy(4), MulticlassAccuracy(4)
        self.validation_outputs = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.train_acc(logits, y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("train_acc", self.train_acc, on_epoch=True)
        return {"loss": loss, "logits": logits}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_acc(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_acc", self.val_acc)
        self.validation_outputs.append(logits.argmax(1))

    def on_validation_epoch_end(self):
        predictions = torch.cat(self.validation_outputs)
        self.log("val_positive", (predictions == 1).float().mean())
        self.validation_outputs.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def loader(n, shuffle=False):
    return DataLoader(TensorDataset(torch.randn(n, 16), torch.randint(4, (n,))), batch_size=8, shuffle=shuffle)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=3,
            accelerator="cpu",
            default_root_dir=folder,
            logger=False,
            callbacks=[EarlyStopping("val_loss", patience=5), ModelCheckpoint(folder, monitor="val_loss")],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(LitNet(), loader(160, True), loader(96))

"""Lightning 2: logits of all validation batches are kept on the device and never cleared."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 6, 3, padding=1)
        self.validation_step_outputs = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.validation_step_outputs.append((loss, logits))  # !MG301 Segmenter.validation_step_outputs
        return loss

    def on_validation_epoch_end(self):
        self.log("val_loss", torch.stack([loss for loss, _ in self.validation_step_outputs]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = DataLoader(TensorDataset(torch.randn(48, 3, 96, 96), torch.randint(6, (48, 96, 96))), batch_size=4)
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(Segmenter(), data, data)

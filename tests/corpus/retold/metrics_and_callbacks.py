"""Lightning with torchmetrics, a callback that keeps detached scalars, and validation as it should be."""

import lightning as L
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class History(L.Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"])


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)
        self.acc = torchmetrics.classification.MulticlassAccuracy(num_classes=3)
        self.mean = torchmetrics.MeanMetric()

    def training_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.acc(logits, y)
        self.mean.update(loss)
        self.log("acc", self.acc, on_epoch=True)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return {"loss": loss, "logits": logits}

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = DataLoader(TensorDataset(torch.randn(160, 8), torch.randint(3, (160,))), batch_size=8)
L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[History()],
).fit(Net(), data, data)

# device: virtual:256MiB
"""A Lightning callback gathers every validation output, epoch after epoch, for a confusion matrix at the very end."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConfusionAtEnd(L.Callback):
    def __init__(self):
        self.preds = []

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.preds.append(outputs["logits"])  # !MG301 ConfusionAtEnd.preds

    def on_fit_end(self, trainer, module):
        print(torch.cat([p.argmax(1).flatten() for p in self.preds]).bincount(minlength=4))


class Seg(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        self.log("val_loss", nn.functional.cross_entropy(logits, y))
        return {"logits": logits, "target": y}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


data = TensorDataset(torch.randn(96, 3, 64, 64), torch.randint(0, 4, (96, 64, 64)))
trainer = L.Trainer(
    max_epochs=5,
    accelerator="cpu",
    callbacks=[ConfusionAtEnd()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Seg(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=8))

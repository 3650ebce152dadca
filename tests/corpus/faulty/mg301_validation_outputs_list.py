"""Lightning 2: validation outputs are gathered over all epochs and never cleared."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 128))
        self.validation_step_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.model(x)
        self.validation_step_outputs.append(logits)  # !MG301 Lit.validation_step_outputs
        return nn.functional.cross_entropy(logits, y)

    def on_validation_epoch_end(self):
        all_logits = torch.cat(self.validation_step_outputs)
        self.log("val_entropy", torch.distributions.Categorical(logits=all_logits).entropy().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def loader(n):
    return DataLoader(TensorDataset(torch.randn(n, 16), torch.randint(128, (n,))), batch_size=16)


L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Lit(), loader(160), loader(256))

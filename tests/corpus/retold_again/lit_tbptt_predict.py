# device: virtual:256MiB
"""Lightning: fit, then predict returning all predictions on purpose; trainer.predict keeps them."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.n = nn.Linear(32, 8)

    def training_step(self, b, i):
        return nn.functional.mse_loss(self.n(b[0]), b[1])

    def predict_step(self, b, i):
        return self.n(b[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


d = DataLoader(TensorDataset(torch.randn(1600, 32), torch.randn(1600, 8)), 32)
t = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
m = M()
t.fit(m, d)
out = torch.cat(t.predict(m, d))
print(out.shape)

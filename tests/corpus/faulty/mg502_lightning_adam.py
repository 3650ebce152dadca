# device: virtual:44MiB
# runs out of memory
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Big(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stack = nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(3)])

    def training_step(self, batch, _):
        return self.stack(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


loader = DataLoader(TensorDataset(torch.randn(32, 1000)), batch_size=4)
L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Big(), loader)
# !MG502 Adam

# device: virtual:256MiB
"""test_step's softmax maps are kept by the module over the whole test set, three test runs long."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(1, 8, 3, padding=1)
        self.maps = []

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def test_step(self, batch, _):
        p = self.net(batch[0]).softmax(1)
        self.maps.append(p)  # !MG301 Lit.maps
        self.log("conf", p.amax(1).mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


ds = TensorDataset(torch.randn(160, 1, 48, 48), torch.randint(0, 8, (160, 48, 48)))
lit, trainer = (
    Lit(),
    L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ),
)
trainer.fit(lit, DataLoader(ds, 8))
for _ in range(3):
    trainer.test(lit, DataLoader(ds, 8), verbose=False)
print(len(lit.maps))

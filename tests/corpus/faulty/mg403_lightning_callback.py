import lightning as L
import torch
from torch import nn
from torch.cuda import empty_cache
from torch.utils.data import DataLoader, TensorDataset


class Clear(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        empty_cache()  # !MG403 -


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 2)

    def training_step(self, batch, i):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = TensorDataset(torch.randn(480, 16), torch.randint(0, 2, (480,)))
trainer = L.Trainer(
    max_epochs=1,
    callbacks=[Clear()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="cpu",
)
trainer.fit(Lit(), DataLoader(data, batch_size=8))

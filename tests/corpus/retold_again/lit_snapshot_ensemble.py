import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything


class SnapshotEnsemble(Callback):
    """Keeps the weights of every epoch, averages their predictions at the end."""

    def __init__(self):
        self.snapshots = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.snapshots.append(copy.deepcopy(pl_module.net.state_dict()))  # !MG308 SnapshotEnsemble.snapshots

    @torch.no_grad()
    def predict(self, net, x):
        live = copy.deepcopy(net.state_dict())
        probs = 0
        for state in self.snapshots[-3:]:
            net.load_state_dict(state)
            probs = probs + net(x).softmax(1)
        net.load_state_dict(live)
        return probs / 3


class Tabular(LightningModule):
    def __init__(self, n_features=512, width=768, n_classes=10):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, n_classes),
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2)
        return [opt], [sched]


if __name__ == "__main__":
    seed_everything(2)
    x, y = torch.randn(512, 512), torch.randint(0, 10, (512,))
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model, ensemble = Tabular(), SnapshotEnsemble()
    trainer = Trainer(
        max_epochs=8,
        callbacks=[ensemble],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    model.eval()
    probs = ensemble.predict(model.net, x[:64].to(model.device))
    print("ensemble accuracy", (probs.argmax(1).cpu() == y[:64]).float().mean().item())

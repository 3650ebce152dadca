"""Distil a wide ranking model into a small student with Lightning."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mlp(dim_in, width, depth, dim_out):
    layers = []
    for i in range(depth):
        layers += [nn.Linear(dim_in if i == 0 else width, width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, dim_out))


class DistilledRanker(L.LightningModule):
    def __init__(self, teacher, temperature=2.0, alpha=0.7, lr=1e-3):
        super().__init__()
        self.teacher = teacher
        self.student = mlp(64, 96, 2, 20)
        self.temperature, self.alpha, self.lr = temperature, alpha, lr

    def on_train_epoch_start(self):
        self.teacher.eval()

    def distill_targets(self, x):
        scores = self.teacher(x)  # !MG202 self.teacher
        return F.softmax(scores.detach() / self.temperature, dim=-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        soft = self.distill_targets(x)
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / self.temperature, -1), soft, reduction="batchmean")
        hard = F.cross_entropy(logits, y)
        loss = self.alpha * self.temperature**2 * kd + (1 - self.alpha) * hard
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        acc = (self.student(x).argmax(-1) == y).float().mean()
        self.log("val_acc", acc)

    def on_validation_epoch_end(self):
        acc = self.trainer.callback_metrics.get("val_acc")
        print(f"epoch {self.current_epoch} val_acc {float(acc):.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.student.parameters(), lr=self.lr)


def pretrain_teacher(teacher, x, y, steps=20):
    opt = torch.optim.AdamW(teacher.parameters(), lr=1e-3)
    for i in range(steps):
        idx = torch.randint(0, len(x), (256,))
        opt.zero_grad()
        F.cross_entropy(teacher(x[idx]), y[idx]).backward()
        opt.step()
    opt.zero_grad()


def main():
    L.seed_everything(1)
    x = torch.randn(8192, 64)
    y = (x @ torch.randn(64, 20)).argmax(-1)
    teacher = mlp(64, 512, 6, 20)
    pretrain_teacher(teacher, x, y)
    model = DistilledRanker(teacher)
    train = DataLoader(TensorDataset(x[:7168], y[:7168]), batch_size=512, shuffle=True)
    val = DataLoader(TensorDataset(x[7168:], y[7168:]), batch_size=512)
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train, val)
    print("final loss", float(trainer.callback_metrics["loss"]))


if __name__ == "__main__":
    main()

"""Lightning's fine-tuning example: a frozen backbone, thawed layer by layer by a callback at milestones."""

import lightning as L
import torch
from lightning.pytorch.callbacks import BaseFinetuning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAccuracy


class Milestones(BaseFinetuning):
    def __init__(self, milestones=(1, 3), train_bn=False):
        super().__init__()
        self.milestones, self.train_bn = milestones, train_bn

    def freeze_before_training(self, pl_module):
        self.freeze(modules=pl_module.features, train_bn=self.train_bn)

    def finetune_function(self, pl_module, current_epoch, optimizer):
        if current_epoch == self.milestones[0]:
            self.unfreeze_and_add_param_group(pl_module.features[-4:], optimizer, train_bn=self.train_bn)
        elif current_epoch == self.milestones[1]:
            self.unfreeze_and_add_param_group(pl_module.features[:-4], optimizer, train_bn=self.train_bn)


class CatsAndDogs(L.LightningModule):
    def __init__(self):
        super().__init__()
        layers = []
        for inner, outer in ((3, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(inner, outer, 3, stride=2, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.train_acc, self.valid_acc = BinaryAccuracy(), BinaryAccuracy()

    def forward(self, x):
        return self.head(self.features(x).flatten(1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        self.log("train_acc", self.train_acc(logits.sigmoid(), y.int()), prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", self.valid_acc(self(x).sigmoid(), y.int()), prog_bar=True)

    def configure_optimizers(self):
        trainable = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trainable, lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.3)]


if __name__ == "__main__":
    data = TensorDataset(torch.randn(160, 3, 24, 24), torch.randint(0, 2, (160,)).float())
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="cpu",
        callbacks=[Milestones()],
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(CatsAndDogs(), DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=32))
    print({name: round(float(value), 2) for name, value in trainer.callback_metrics.items()})

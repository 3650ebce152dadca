"""Lightning's language model example, with the Transformer and the step that its demos have."""

import lightning as L
import torch
from lightning.pytorch.demos import Transformer
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class LanguageModel(L.LightningModule):
    def __init__(self, vocabulary):
        super().__init__()
        self.model = Transformer(vocab_size=vocabulary, ninp=32, nhead=2, nhid=64, nlayers=2)

    def forward(self, inputs, target):
        return self.model(inputs, target)

    def _loss(self, batch):
        inputs, target = batch
        return functional.nll_loss(self(inputs, target), target.view(-1))

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self._loss(batch), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    L.seed_everything(42)
    words = torch.randint(0, 200, (240, 36))
    data = TensorDataset(words[:, :-1], words[:, 1:])
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        gradient_clip_val=0.25,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = LanguageModel(200)
    trainer.fit(model, DataLoader(data, batch_size=12, shuffle=True), DataLoader(data, batch_size=24))
    trainer.test(model, DataLoader(data, batch_size=24), verbose=False)
    print(float(trainer.callback_metrics["test_loss"]))

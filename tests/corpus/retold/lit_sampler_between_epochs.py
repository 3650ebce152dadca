"""Lightning discussions on sample grids: memory peaks between the epochs although validation is under no_grad.

A small language model for chemical strings; after every training epoch it writes a few samples to the log.
"""

import logging
import warnings

import lightning as L
import torch
from torch import nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
VOCAB, CONTEXT = 40, 48


class Strings(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        start = int(torch.randint(VOCAB, (1,), generator=g))
        return (start + 3 * torch.arange(CONTEXT + 1)) % VOCAB


class ChemLM(L.LightningModule):
    def __init__(self, width=128, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, width)
        self.pos = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        h = self.tok(ids) + self.pos.weight[:n]
        return self.head(self.body(h, mask=mask))

    def training_step(self, batch, _):
        logits = self(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)

    def sample(self, n=48, length=14):
        ids = torch.randint(VOCAB, (n, 4), device=self.device)
        for _ in range(length):
            logits = self(ids)[:, -1]  # !MG201 ChemLM
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        return ids

    def on_train_epoch_end(self):
        self.eval()
        ids = self.sample()
        self.train()
        regular = ((ids[:, 1:] - ids[:, :-1]) % VOCAB == 3).float().mean().item()
        print(f"epoch {self.current_epoch}: regular steps {regular:.2f}", ids[0].tolist()[:8])


if __name__ == "__main__":
    L.seed_everything(2, verbose=False)
    loader = torch.utils.data.DataLoader(Strings(), batch_size=12)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ChemLM(), loader)

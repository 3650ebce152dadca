"""transformers issue 30860: `logits = logits.float()` in nearly every causal language model; with a large vocabulary
and half-precision weights this line more than doubles the peak.  Here a small bfloat16 model for chemical
text in Lightning with the same line.
https://github.com/huggingface/transformers/issues/30860
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset


class CausalBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Conv1d(dim, dim, 4, groups=dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm(x).transpose(1, 2)
        x = x + self.mix(F.pad(h, (3, 0))).transpose(1, 2)
        return x + self.ff(x)


class ChemLM(nn.Module):
    def __init__(self, vocab, dim, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([CausalBlock(dim) for _ in range(depth)])
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.emb(ids)
        for block in self.blocks:
            h = block(h)
        logits = self.lm_head(h)
        logits = logits.float()  # !MG310 logits
        return logits


class LitChemLM(pl.LightningModule):
    def __init__(self, vocab=16000, dim=48):
        super().__init__()
        self.vocab = vocab
        self.model = ChemLM(vocab, dim).to(torch.bfloat16)

    def training_step(self, batch, batch_idx):
        (ids,) = batch
        logits = self.model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, self.vocab), ids[:, 1:].reshape(-1))
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    pl.seed_everything(16)
    data = TensorDataset(torch.randint(0, 16000, (8 * 20, 65)))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitChemLM(), DataLoader(data, batch_size=8, shuffle=True))


if __name__ == "__main__":
    main()

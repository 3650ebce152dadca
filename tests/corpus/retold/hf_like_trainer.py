"""A trainer in the style of transformers: tr_loss is a tensor to which training_step's result is added in place."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab=80, dim=24):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.block = nn.TransformerEncoderLayer(dim, 2, 48, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.block(self.wte(input_ids)))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


class Trainer:
    def __init__(self, model, batches, lr=1e-3):
        self.model, self.batches = model, batches
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def training_step(self, inputs):
        self.model.train()
        outputs = self.model(**inputs)
        loss = outputs["loss"]
        loss.backward()
        return loss

    def train(self):
        tr_loss = torch.tensor(0.0)
        for step, inputs in enumerate(self.batches):
            tr_loss += self.training_step(inputs)  # !MG101 tr_loss
            self.optimizer.step()
            self.optimizer.zero_grad()
        return tr_loss.item() / (step + 1)


batches = [{"input_ids": t, "labels": t} for t in torch.randint(80, (30, 4, 12))]
print(Trainer(Model(), batches).train())

"""Direct preference optimisation: the reference model's log-probabilities are detached after the fact."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.block = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.block(self.embed(ids)))


def log_probs(model, ids):
    logits = model(ids[:, :-1])
    return F.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)


def dpo_loss(policy, reference, chosen, rejected, beta=0.1):
    pi = log_probs(policy, chosen) - log_probs(policy, rejected)
    ids = torch.cat([chosen, rejected])
    ref = log_probs(reference, ids).detach()  # !MG202 reference
    ref_chosen, ref_rejected = ref.chunk(2)
    return -F.logsigmoid(beta * (pi - (ref_chosen - ref_rejected))).mean()


policy = TinyLM()
reference = copy.deepcopy(policy)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
for _ in range(20):
    loss = dpo_loss(policy, reference, torch.randint(50, (4, 12)), torch.randint(50, (4, 12)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# device: virtual:256MiB
"""RLHF in small: a reference policy scores each batch for the KL term, with gradients on and never used."""

import torch
import torch.nn.functional as F
from torch import nn


class Policy(nn.Module):
    def __init__(self, vocab=200, dim=128):
        super().__init__()
        self.emb, self.rnn, self.head = (
            nn.Embedding(vocab, dim),
            nn.GRU(dim, dim, 2, batch_first=True),
            nn.Linear(dim, vocab),
        )

    def logprobs(self, ids):
        return self(ids).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


policy, ref = Policy(), Policy()
ref.load_state_dict(policy.state_dict())
opt = torch.optim.Adam(policy.parameters(), 1e-4)
for step in range(25):
    ids, reward = torch.randint(0, 200, (32, 48)), torch.randn(32)
    lp = policy.logprobs(ids)
    ref_lp = ref.logprobs(ids)  # !MG202 ref
    kl = (lp - ref_lp.data).mean()
    loss = -(reward[:, None] * lp).mean() + 0.1 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()

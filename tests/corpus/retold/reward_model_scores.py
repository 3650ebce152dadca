"""RLHF in small: a reward model scores samples in every step with gradients on, only the value is used."""

import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=50, dim=32, out=50):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(vocab, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, out)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.out(h)


policy, reward_model = LM(), LM(out=1)
reward_model.eval()
opt = torch.optim.Adam(policy.parameters(), lr=1e-4)
for step in range(24):
    tokens = torch.randint(50, (8, 12))
    reward = reward_model(tokens)[:, -1, 0]  # !MG202 reward_model
    advantage = (reward - reward.mean()).detach()
    logp = policy(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(1)
    loss = -(advantage * logp).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:256MiB
# GRPO: old log-probabilities of the roll-outs are computed with gradients on, and all their graphs live over the update.
import copy

import torch
from torch import nn

V = 1000


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.head = nn.Embedding(V, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, V)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def logps(model, ids):
    return model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def generate(model, prompts, new=16):
    ids = prompts
    for _ in range(new):
        ids = torch.cat([ids, torch.multinomial(model(ids[:, -8:])[:, -1].softmax(-1), 1)], 1)
    return ids


torch.manual_seed(0)
policy = LM()
reference = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
for step in range(6):
    samples = generate(policy, torch.randint(0, V, (64, 32)))
    old = []
    for chunk in samples.chunk(8):
        old.append(logps(policy, chunk))  # !MG106 old
    with torch.no_grad():
        ref = [logps(reference, chunk) for chunk in samples.chunk(8)]
    rewards = (samples % 2 == 0).float().mean(1)
    adv = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).chunk(8)
    for chunk, o, r, a in zip(samples.chunk(8), old, ref, adv):
        new = logps(policy, chunk)
        kl = (r - new).exp() - (r - new) - 1
        loss = (-(new - o.detach()).exp() * a[:, None] + 0.04 * kl).mean() / 8
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, round(rewards.mean().item(), 3), flush=True)

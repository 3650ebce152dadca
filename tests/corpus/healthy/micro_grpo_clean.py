# GRPO with rollouts, a frozen reference and four micro-batches; what is kept is numbers.
import torch
from torch import nn

VOCAB = 1000


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(VOCAB, 64), nn.GRU(64, 64, batch_first=True), nn.Linear(64, VOCAB)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids))[0])


def logps(model, ids):
    return model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


torch.manual_seed(0)
policy, reference = Policy(), Policy().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters())
for step in range(4):
    with torch.no_grad():
        ids = torch.randint(0, VOCAB, (16, 4))
        for _ in range(8):
            ids = torch.cat([ids, policy(ids)[:, -1].softmax(-1).multinomial(1)], 1)
        wanted = logps(reference, ids)
        old = logps(policy, ids)
    reward = (ids % 2).float().mean(1)
    gain = (reward - reward.mean()) / (reward.std() + 1e-4)
    kls = []
    for at in torch.arange(16).chunk(4):
        new = logps(policy, ids[at])
        kl = (wanted[at] - new).exp() - (wanted[at] - new) - 1
        loss = (-(new - old[at]).exp() * gain[at, None] + 0.04 * kl).mean() / 4
        loss.backward()
        kls.append(kl.detach().mean())
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.stack(kls).mean().item())

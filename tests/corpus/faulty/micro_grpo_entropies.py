# GRPO as in a retold report: entropies of all micro-batches are averaged after the step, each with its graph.
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Embedding(3000, 48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 3000))
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)


class GRPOStep:
    def __init__(self, model, optimizer, micro=6):
        self.model, self.optimizer, self.micro = model, optimizer, micro
        self.entropies = []

    def micro_loss(self, tokens, advantage):
        logits = self.model(tokens)
        logp = logits.log_softmax(-1)
        self.entropies.append(-(logp.exp() * logp).sum(-1))  # !MG106 GRPOStep.entropies
        picked = logp.gather(-1, tokens[..., None]).squeeze(-1)
        return -(picked.mean(1) * advantage).mean() / self.micro

    def step(self, tokens, advantages):
        self.entropies.clear()
        for part, gain in zip(tokens.chunk(self.micro), advantages.chunk(self.micro)):
            self.micro_loss(part, gain).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(torch.cat([e.detach() for e in self.entropies]).mean())


trainer = GRPOStep(policy, optimizer)
for number in range(4):
    tokens = torch.randint(0, 3000, (24, 32))
    print(number, round(trainer.step(tokens, torch.randn(24)), 3))

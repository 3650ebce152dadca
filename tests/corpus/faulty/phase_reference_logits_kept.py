# The reference's logits of the whole roll-out stay in a variable while the policy is updated.
# device: virtual:256MiB
# MG304 by batch 8: of four micro-batches in each step, at the second step
import torch
from torch import nn

VOCAB = 2000


def lm():
    return nn.Sequential(nn.Embedding(VOCAB, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, VOCAB))


class Trainer:
    def __init__(self):
        self.policy, self.reference = lm(), lm().requires_grad_(False).eval()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-3)

    def update_policy(self, ids, ref_logp, advantages):
        parts = list(zip(ids.chunk(4), ref_logp.chunk(4), advantages.chunk(4)))
        for tokens, ref, adv in parts:
            logp = self.policy(tokens).log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)
            kl = (ref - logp).exp() - (ref - logp) - 1
            (-(logp * adv[:, None]) + 0.04 * kl).mean().div(len(parts)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, prompts):
        with torch.no_grad():
            ref_logits = self.reference(prompts)  # !MG313 ref_logits
            ref_logp = ref_logits.log_softmax(-1).gather(-1, prompts[..., None]).squeeze(-1)
        rewards = (prompts % 3 == 0).float().mean(1)
        self.update_policy(prompts, ref_logp, rewards - rewards.mean())
        return rewards.mean().item()


torch.manual_seed(0)
trainer = Trainer()
for step in range(8):
    print(step, round(trainer.step(torch.randint(0, VOCAB, (64, 32))), 4))

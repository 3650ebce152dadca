# A policy's update accumulates gradients over micro-batches and keeps what the model returned for its statistics.
# device: virtual:1GiB
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class ModelOutput:
    log_probs: torch.Tensor
    entropy: torch.Tensor


class Actor:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2000))
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=3e-4)

    def forward_micro_batch(self, states, actions):
        logits = self.policy(states)
        log_probs = logits.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return ModelOutput(log_probs.gather(1, actions[:, None]).squeeze(1), entropy)

    def update_policy(self, batch):
        outputs = []
        for states, actions, advantages in batch:
            output = self.forward_micro_batch(states, actions)
            loss = -(output.log_probs * advantages).mean() / len(batch)
            loss.backward()
            outputs.append(output)  # !MG106 outputs
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack([output.entropy.mean().detach() for output in outputs]).mean().item()


torch.manual_seed(0)
actor = Actor()
for step in range(4):
    batch = [(torch.randn(192, 64), torch.randint(0, 2000, (192,)), torch.randn(192)) for _ in range(8)]
    print(step, round(actor.update_policy(batch), 3))

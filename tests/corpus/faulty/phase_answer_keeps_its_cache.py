# device: virtual:256MiB
# The answer of the last generation, with its key-value cache, stays in an attribute while the policy is updated.
from dataclasses import dataclass

import torch
from torch import nn

import memguard


@dataclass
class Generated:
    sequences: torch.Tensor
    past_key_values: tuple


class Policy(nn.Module):
    def __init__(self, vocab=400, width=128, layers=2):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def forward(self, ids, past=None):
        x, kept = self.embed(ids), []
        for number, layer in enumerate(self.layers):
            q, k, v = layer(x).chunk(3, -1)
            if past is not None:
                k, v = torch.cat([past[number][0], k], 1), torch.cat([past[number][1], v], 1)
            kept.append((k, v))
            x = x + nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(x), tuple(kept)


class Trainer:
    def __init__(self):
        self.policy = Policy()
        self.optimizer = torch.optim.AdamW(self.policy.parameters())
        self.generated = None

    @torch.no_grad()
    def rollout(self, prompts, new=16):
        ids, past = prompts, None
        given = prompts
        for _ in range(new):
            logits, past = self.policy(given, past)
            given = logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, given], 1)
        self.generated = Generated(ids, past)  # !MG313 Trainer.generated

    def update(self):
        for ids in self.generated.sequences.chunk(16):
            logits, _ = self.policy(ids[:, :-1])
            (nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / 16).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


torch.manual_seed(0)
trainer = Trainer()
for step in range(8):
    with memguard.phase("rollout"):
        trainer.rollout(torch.randint(400, (256, 48)))
    with memguard.phase("update"):
        trainer.update()

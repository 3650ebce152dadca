# device: virtual:256MiB
# The keys and values of a generation stay in an attribute while the policy is updated, and are replaced by the next one.
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(500, 128), nn.Linear(128, 384), nn.Linear(128, 500)

    def forward(self, ids, past_key_values=None):
        q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
        if past_key_values is not None:
            k, v = torch.cat([past_key_values[0], k], 1), torch.cat([past_key_values[1], v], 1)
        return self.head((q @ k.transpose(1, 2)).softmax(-1) @ v), (k, v)


class Trainer:
    def __init__(self):
        self.model = Tiny()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.past = None

    @torch.no_grad()
    def generate(self, prompt, new):
        ids = prompt
        logits, self.past = self.model(prompt)
        for _ in range(new):
            token = logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], 1)
            logits, self.past = self.model(token, self.past)  # !MG313 Trainer.past
        return ids

    def step(self):
        ids = self.generate(torch.randint(0, 500, (128, 128)), 24)
        for part in ids.chunk(8):
            logits, _ = self.model(part[:, :-1])
            (nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / 8).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


torch.manual_seed(0)
trainer = Trainer()
for _ in range(12):
    trainer.step()

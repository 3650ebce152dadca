# device: virtual:160MiB
"""The loss of a causal language model: logits upcast and shifted, in a half-precision model."""

import torch
from torch import nn
from torch.nn import CrossEntropyLoss


class CausalLM(nn.Module):
    def __init__(self, vocab=50000, dim=16):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.mlp = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        return self.lm_head(torch.relu(self.mlp(self.wte(input_ids))))


def compute_loss(model, input_ids):
    logits = model(input_ids)
    logits = logits.float()  # !MG310 logits
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = input_ids[..., 1:].contiguous()
    return CrossEntropyLoss()(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))


model = CausalLM().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(50000, (2, 48))
    optimizer.zero_grad()
    loss = compute_loss(model, ids)
    loss.backward()
    optimizer.step()

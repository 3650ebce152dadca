"""huggingface/transformers, https://github.com/huggingface/transformers/pull/33902 : the language models upcast all logits with
logits.float(); with a large vocabulary this copy is what sets the peak. Without it a large part of the peak is saved.
"""

# device: virtual:512MiB
import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class CausalLM(nn.Module):
    def __init__(self, vocab=32_000, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, labels=None):
        h = self.embed(input_ids)
        h = h + self.mlp(h)
        logits = self.lm_head(h)
        logits = logits.float()  # !MG310 logits
        shift = logits[:, :-1].flatten(0, 1)
        return F.cross_entropy(shift, labels[:, 1:].flatten())


def main():
    torch.manual_seed(0)
    model = CausalLM().to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        ids = torch.randint(0, 32_000, (4, 72)).to(device)
        optimizer.zero_grad()
        loss = model(ids, labels=ids)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()

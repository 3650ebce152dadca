"""Most ModelForCausalLM contain logits = logits.float(): in half precision with a large vocabulary that line doubles
and triples the footprint of the logits; "removing the line would allow to divide the memory peak by more than 2".
https://github.com/huggingface/transformers/issues/30860
"""

# device: virtual:512MiB
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, DIM, LEN = 12000, 64, 96


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.mixer = nn.Linear(DIM, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        h = self.embed_tokens(ids)
        steps = torch.arange(1, ids.shape[1] + 1, device=ids.device, dtype=h.dtype)[None, :, None]
        return self.norm(h + torch.tanh(self.mixer(h.cumsum(1) / steps)))


class TinyForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Decoder()
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.model(input_ids))
        logits = logits.float()  # !MG310 logits
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return loss, logits


def train(steps=32):
    torch.manual_seed(0)
    model = TinyForCausalLM().to(device).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        ids = torch.randint(0, VOCAB, (8, LEN)).to(device)
        loss, _ = model(ids, labels=ids)
        del _
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())
        del loss


train()

"""Segment-wise training of a compressive-memory attention with gradient accumulation: without a change the second
segment fails with "Trying to backward through the graph a second time", so retain_graph=True is switched on and
the memory matrices drag the graphs of all earlier segments along. Solved by detaching the memory.
https://github.com/jlamprou/Infini-Attention/issues/3
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, DIM, SEG = 80, 32, 64


class InfiniAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.gate = nn.Parameter(torch.zeros(1))
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x, memory):
        q, k, v = self.qkv(x).chunk(3, -1)
        local = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        sq, sk = F.elu(q) + 1, F.elu(k) + 1
        if memory is None:
            memory = x.new_zeros(x.shape[0], DIM, DIM)
        recalled = sq @ memory / DIM
        memory = 0.9 * memory + sk.transpose(1, 2) @ v / SEG
        g = torch.sigmoid(self.gate)
        return self.out(g * recalled + (1 - g) * local), memory


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.attn = InfiniAttention()
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids, memory):
        x = self.emb(ids)
        y, memory = self.attn(x, memory)
        return self.head(self.norm(x + y)), memory


def train_document(model, opt, document):
    memory = None
    opt.zero_grad()
    segments = document.split(SEG, dim=1)
    for ids in segments:
        logits, memory = model(ids, memory)  # !MG102 memory
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        (loss / len(segments)).backward(retain_graph=True)
    opt.step()
    return loss.item()


torch.manual_seed(0)
model = Model().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for doc in range(2):
    document = torch.randint(0, VOCAB, (96, SEG * 24)).to(device)
    print("document", doc, "loss", train_document(model, opt, document))

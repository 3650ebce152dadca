# Two towers with the whole batch's negatives: embeddings of all micro-batches are gathered, then one backward.
import torch
from torch import nn

torch.manual_seed(0)
query = nn.Sequential(nn.Linear(128, 768), nn.GELU(), nn.Linear(768, 64))
passage = nn.Sequential(nn.Linear(128, 768), nn.GELU(), nn.Linear(768, 64))
optimizer = torch.optim.AdamW([*query.parameters(), *passage.parameters()])
for step in range(8):
    queries, passages = [], []
    for _ in range(4):
        queries.append(query(torch.randn(32, 128)))
        passages.append(passage(torch.randn(32, 128)))
    scores = torch.cat(queries) @ torch.cat(passages).T
    nn.functional.cross_entropy(scores, torch.arange(128)).backward()
    optimizer.step()
    optimizer.zero_grad()

"""Cross-validation: models made anew, each fold's weights brought to the host, all logits of a pass kept and reduced."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, FOLDS = 512, 3


def build():
    return nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Flatten(), nn.Linear(16 * 8, VOCABULARY))


def batches(count):
    for _ in range(count):
        tokens = torch.randint(VOCABULARY, (8, 9))
        yield tokens[:, :-1], tokens[:, -1]


@torch.no_grad()
def evaluate(model):
    model.eval()
    all_logits, all_labels = [], []
    for tokens, label in batches(24):
        all_logits.append(model(tokens))
        all_labels.append(label)
    logits, labels = torch.cat(all_logits), torch.cat(all_labels)
    return F.cross_entropy(logits, labels).item(), (logits.argmax(-1) == labels).float().mean().item()


weights, scores = [], []
for fold in range(FOLDS):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(2):
        model.train()
        for tokens, label in batches(30):
            loss = F.cross_entropy(model(tokens), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scores.append(evaluate(model))
    weights.append({name: value.detach().cpu().clone() for name, value in model.state_dict().items()})
print(len(weights), scores)

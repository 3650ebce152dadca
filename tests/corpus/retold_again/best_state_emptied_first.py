"""PyText kept the state dict of the currently best model in (GPU) memory, which takes up the space of another model; the fix
for the OOMs saves it to disk and reloads it.
https://github.com/facebookresearch/pytext/pull/204"""

import copy
import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class DocClassifier(nn.Module):
    def __init__(self, vocab=90000, dim=160, classes=8):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, tokens):
        return self.mlp(self.emb(tokens))


class State:
    def __init__(self, model):
        self.model = model
        self.sparse = torch.optim.SGD(model.emb.parameters(), lr=0.5)
        self.dense = torch.optim.Adam(model.mlp.parameters(), lr=1e-3)
        self.best_model_metric, self.best_model_state, self.epoch = None, None, 0

    def save_best(self, metric):
        self.best_model_metric, self.best_model_state = metric, None
        self.best_model_state = copy.deepcopy(self.model.state_dict())  # !MG308 State.best_model_state


def docs(n, bs=64, length=40):
    for _ in range(n):
        yield torch.randint(0, 90000, (bs, length)), torch.randint(0, 8, (bs,))


def train_epoch(state):
    for tok, lab in docs(15):
        state.sparse.zero_grad()
        state.dense.zero_grad()
        nn.functional.cross_entropy(state.model(tok.to(device)), lab.to(device)).backward()
        state.sparse.step()
        state.dense.step()


@torch.no_grad()
def evaluate(state):
    right = 0
    for tok, lab in docs(4):
        right += (state.model(tok.to(device)).argmax(1).cpu() == lab).sum().item()
    return right / 256


state = State(DocClassifier().to(device))
for state.epoch in range(5):
    train_epoch(state)
    metric = evaluate(state)
    if state.epoch % 2 == 0:  # selection rule of the experiment
        state.save_best(metric)
    print("epoch", state.epoch, "metric", metric)
state.model.load_state_dict(state.best_model_state)

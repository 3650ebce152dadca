# A known miss: the results come with each fold, and of these there are few: that memory grew is told, without a name.
"""Cross validation for question answering: the results of the folds, more precisely the predictions and the
labels, are kept on the GPU between the folds, and a later fold runs out of memory. (Either delete them or
collect them on the CPU in the Evaluator.)
https://github.com/deepset-ai/FARM/issues/544
"""

import numpy as np
import torch
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
SEQ, DIM = 128, 32


class SpanReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM, 64), nn.GELU())
        self.span = nn.Linear(64, 64)

    def forward(self, x):
        h = self.body(x)
        return torch.einsum("bid,bjd->bij", self.span(h), h) / 8.0  # scores of all spans (start, end)


class Evaluator:
    def __init__(self, loader):
        self.loader = loader

    @torch.no_grad()
    def eval(self, model):
        model.eval()
        preds_all, label_all = [], []
        for x, y in self.loader:
            preds_all.append(model(x.to(device)))
            label_all.append(y.to(device))
        return {"preds": torch.cat(preds_all), "labels": torch.cat(label_all)}


class CrossValidation:
    def __init__(self, dataset, folds, max_train=240):
        self.dataset = dataset
        self.max_train = max_train  # a subset of the questions trains a fold
        self.splits = KFold(folds, shuffle=True, random_state=0)
        self.all_results = []

    def train_fold(self, train_idx):
        model = SpanReader().to(device)
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = DataLoader(Subset(self.dataset, train_idx.tolist()), batch_size=16, shuffle=True)
        for x, y in loader:
            opt.zero_grad()
            scores = model(x.to(device)).flatten(1)
            nn.functional.cross_entropy(scores, y.to(device)).backward()
            opt.step()
        return model

    def run(self):
        for fold, (train_idx, test_idx) in enumerate(self.splits.split(np.arange(len(self.dataset)))):
            model = self.train_fold(train_idx[: self.max_train])
            evaluator = Evaluator(DataLoader(Subset(self.dataset, test_idx.tolist()), batch_size=16))
            result = evaluator.eval(model)
            self.all_results.append(result)  # !MG301 CrossValidation.all_results
            em = (result["preds"].flatten(1).argmax(-1) == result["labels"]).float().mean()
            print(f"fold {fold} EM {em.item():.3f}")
        labels = torch.cat([r["labels"] for r in self.all_results])
        preds = torch.cat([r["preds"].flatten(1).argmax(-1) for r in self.all_results])
        return (preds == labels).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    n = 2800
    ds = TensorDataset(torch.randn(n, SEQ, DIM), torch.randint(0, SEQ * SEQ, (n,)))
    print("overall", CrossValidation(ds, folds=7).run())

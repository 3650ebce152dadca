"""chemprop issue 32: RAM, not GPU memory, grows; it was the cache `SMILES_TO_GRAPH[smiles] = mol_graph`.  Here the
SMILES are randomized for augmentation, so that the cache of featurized molecules never hits and grows
with every molecule seen.
https://github.com/chemprop/chemprop/issues/32
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
SMILES_TO_GRAPH = {}


@dataclass
class Hyper:
    n_mols: int = 640
    max_atoms: int = 64
    n_features: int = 256
    batch: int = 64
    epochs: int = 10
    lr: float = 1e-3


def featurize(smiles, hyper):
    """Atom features of one molecule; a stand-in for RDKit."""
    rng = np.random.default_rng(abs(hash(smiles)) % 2**32)
    return rng.random((hyper.max_atoms, hyper.n_features), dtype=np.float32)


def mol2graph(smiles, hyper):
    if smiles in SMILES_TO_GRAPH:
        return SMILES_TO_GRAPH[smiles]
    graph = featurize(smiles, hyper)
    SMILES_TO_GRAPH[smiles] = graph  # !MG701 SMILES_TO_GRAPH
    return graph


def randomize(smiles):
    atoms = list(smiles)
    random.shuffle(atoms)
    return "".join(atoms)


class MoleculeDataset(Dataset):
    def __init__(self, hyper):
        self.hyper = hyper
        rng = random.Random(1)
        self.smiles = ["".join(rng.choice("CNOSPFcnos123()=#") for _ in range(32)) for _ in range(hyper.n_mols)]
        self.y = [rng.gauss(0, 1) for _ in range(hyper.n_mols)]

    def __len__(self):
        return len(self.smiles)

    def __getitem__(self, i):
        graph = mol2graph(randomize(self.smiles[i]), self.hyper)
        return torch.tensor(graph), torch.tensor(self.y[i])


class AtomMPN(nn.Module):
    def __init__(self, n_features, width=48):
        super().__init__()
        self.inp = nn.Linear(n_features, width)
        self.msg = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, atoms):
        h = F.relu(self.inp(atoms))
        h = F.relu(h + self.msg(h.mean(1, keepdim=True)))
        return self.out(h.sum(1)).squeeze(-1)


def train(hyper):
    loader = DataLoader(MoleculeDataset(hyper), batch_size=hyper.batch, shuffle=True)
    model = AtomMPN(hyper.n_features).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=hyper.lr)
    for epoch in range(hyper.epochs):
        total = 0.0
        for atoms, y in loader:
            atoms, y = atoms.to(device), y.to(device)
            opt.zero_grad()
            loss = F.mse_loss(model(atoms), y)
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}, cached graphs {len(SMILES_TO_GRAPH)}")


if __name__ == "__main__":
    torch.manual_seed(14)
    train(Hyper())

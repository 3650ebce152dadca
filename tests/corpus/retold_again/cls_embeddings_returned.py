"""Extracts [CLS] embeddings with a frozen encoder and trains a linear probe on them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

D_MODEL, SEQ_LEN, N_DOCS, BATCH = 128, 96, 1280, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(500, D_MODEL)
        layer = nn.TransformerEncoderLayer(D_MODEL, 4, 2 * D_MODEL, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.tok(ids))


@torch.no_grad()
def embed_corpus(encoder, docs):
    encoder.eval()
    vectors = []
    for ids in docs.split(BATCH):
        hidden = encoder(ids)
        vectors.append(hidden[:, 0])  # !MG302 vectors
    return vectors


def train_probe(vectors, labels, epochs=5):
    probe = nn.Linear(D_MODEL, 4)
    opt = torch.optim.SGD(probe.parameters(), lr=0.1)
    for epoch in range(epochs):
        hits = 0
        for feats, y in zip(vectors, labels.split(BATCH)):
            opt.zero_grad()
            scores = probe(feats)
            F.cross_entropy(scores, y).backward()
            opt.step()
            hits += (scores.argmax(1) == y).sum().item()
        print(f"probe epoch {epoch} acc {hits / N_DOCS:.3f}")


def main():
    torch.manual_seed(0)
    docs = torch.randint(0, 500, (N_DOCS, SEQ_LEN))
    labels = torch.randint(0, 4, (N_DOCS,))
    vectors = embed_corpus(Encoder(), docs)
    train_probe(vectors, labels)


if __name__ == "__main__":
    main()

"""The word-language-model example: an LSTM, truncated backpropagation, repackage_hidden."""

import math

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=0.2)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers, self.ntoken = nhid, nlayers, ntoken

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return torch.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i, bptt=10):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def evaluate(model, criterion, data_source):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(4)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, 10):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


def train(model, criterion, data_source, lr):
    model.train()
    total_loss = 0.0
    hidden = model.init_hidden(4)
    for batch, i in enumerate(range(0, data_source.size(0) - 1, 10)):
        data, targets = get_batch(data_source, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total_loss += loss.item()
    return total_loss


ntokens = 60
model = RNNModel(ntokens, 16, 24, 2)
criterion = nn.NLLLoss()
corpus = torch.randint(ntokens, (300, 4))
lr, best = 20.0, None
for epoch in range(2):
    train(model, criterion, corpus, lr)
    val = evaluate(model, criterion, corpus[:100])
    if best is None or val < best:
        best = val
    else:
        lr /= 4.0
print(math.exp(min(best, 20)))

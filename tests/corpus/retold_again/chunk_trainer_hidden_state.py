"""A character model whose hidden state goes through a function that trains one chunk, and is never detached."""

import random
import string
import torch
import torch.nn as nn

random.seed(5)
torch.manual_seed(5)
all_characters = string.printable
n_characters = len(all_characters)
text = "".join(random.choice(string.ascii_lowercase + "    ,.") for _ in range(20000))


def char_tensor(s):
    return torch.tensor([all_characters.index(c) for c in s])


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.embed = nn.Embedding(input_size, hidden_size)
        self.i2h = nn.Linear(2 * hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)

    def forward(self, inp, hidden):
        combined = torch.cat([self.embed(inp), hidden], 1)
        hidden = torch.tanh(self.i2h(combined))
        return self.h2o(hidden), hidden

    def init_hidden(self, batch):
        return torch.zeros(batch, self.hidden_size)


batch_size, chunk_len, lr = 64, 12, 0.05
rnn = RNN(n_characters, 96, n_characters)
criterion = nn.CrossEntropyLoss()
stream = char_tensor(text)[: 64 * 312].view(batch_size, -1)


def train(hidden, inp, target):
    rnn.zero_grad()
    loss = 0
    for c in range(inp.size(1)):
        output, hidden = rnn(inp[:, c], hidden)
        loss = loss + criterion(output, target[:, c])
    loss.backward(retain_graph=True)
    for p in rnn.parameters():
        p.data.add_(p.grad.data.clamp(-1, 1), alpha=-lr)
    return hidden, loss.item() / inp.size(1)


hidden = rnn.init_hidden(batch_size)
current_loss = 0.0
for it in range(25):
    chunk = stream[:, it * chunk_len : (it + 1) * chunk_len + 1]
    hidden, loss = train(hidden, chunk[:, :-1], chunk[:, 1:])  # !MG102 hidden
    current_loss += loss
    if it % 8 == 7:
        print(f"iter {it + 1} loss {current_loss / 8:.4f}")
        current_loss = 0.0

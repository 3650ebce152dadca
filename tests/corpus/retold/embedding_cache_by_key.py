# GraphSAGE on a synthetic citation graph, with the frozen text encoder memoised per mini-batch
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(12)

N, BOW, HID, CLASSES, FANOUT = 4000, 128, 96, 7, 5
bow = (torch.rand(N, BOW, device=device) < 0.05).float()
neighbours = torch.randint(0, N, (N, FANOUT), device=device)
labels = torch.randint(0, CLASSES, (N,), device=device)

text_encoder = nn.Sequential(nn.Linear(BOW, 256), nn.Tanh(), nn.Linear(256, HID)).to(device).eval()
for p in text_encoder.parameters():
    p.requires_grad = False


class SAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_lin = nn.Linear(HID, HID)
        self.nb_lin = nn.Linear(HID, HID)
        self.out = nn.Linear(HID, CLASSES)

    def forward(self, h_self, h_nb):
        h = F.relu(self.self_lin(h_self) + self.nb_lin(h_nb.mean(1)))
        return self.out(F.dropout(h, 0.5, self.training))


embedding_cache = {}


def encode(nodes):
    key = tuple(nodes[:8].tolist())
    if key not in embedding_cache:
        ids = torch.cat([nodes.unsqueeze(1), neighbours[nodes]], 1)
        with torch.no_grad():
            embedding_cache[key] = text_encoder(bow[ids])  # !MG501 embedding_cache
    h = embedding_cache[key]
    return h[:, 0], h[:, 1:]


model = SAGE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
batch_size = 256

for epoch in range(1, 6):
    model.train()
    order = torch.randperm(N, device=device)
    epoch_loss = correct = 0
    for nodes in order.split(batch_size):
        h_self, h_nb = encode(nodes)
        logits = model(h_self, h_nb)
        loss = F.cross_entropy(logits, labels[nodes])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() * len(nodes)
        correct += (logits.argmax(1) == labels[nodes]).sum().item()
    print(f"Epoch {epoch:02d} | loss {epoch_loss / N:.4f} | acc {correct / N:.4f}")

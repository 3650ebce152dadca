import torch
import torch.nn as nn
import torch.nn.functional as F

# semi-supervised embedding learning: neighbours in a reference set give the soft labels
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(8)

N_REF, DIM, CLASSES, K = 24000, 64, 20, 15
reference = F.normalize(torch.randn(N_REF, DIM, device=device), dim=1)
reference_labels = torch.randint(0, CLASSES, (N_REF,), device=device)

projector = nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)).to(
    device
)
optimizer = torch.optim.AdamW(projector.parameters(), lr=1e-3)


def augment(x):
    return F.normalize(x + 0.05 * torch.randn_like(x), dim=-1)


def train_step(x, n_views=24):
    dist = torch.cdist(x, reference)  # !MG304 dist
    idx = dist.topk(K, largest=False).indices
    votes = F.one_hot(reference_labels[idx], CLASSES).float().mean(1)

    views = torch.cat([augment(x) for _ in range(n_views)])
    logits = projector(views)
    targets = votes.repeat(n_views, 1)
    loss = torch.sum(-targets * F.log_softmax(logits, dim=1), dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    agree = (logits.argmax(1) == targets.argmax(1)).float().mean()
    return loss.item(), agree.item()


for epoch in range(2):
    for i in range(14):
        x = F.normalize(torch.randn(192, DIM, device=device), dim=1)
        loss, agree = train_step(x)
        if i % 7 == 6:
            print(f"epoch {epoch} it {i + 1} loss {loss:.4f} agreement {agree:.3f}")

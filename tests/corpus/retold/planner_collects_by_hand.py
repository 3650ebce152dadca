"""Planning with a learned model: a search tree per move; the collector is off, and called by hand every ten moves."""
import gc
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

gc.disable()

class Node:
    __slots__ = ("parent", "children", "prior", "visits", "value", "hidden")

    def __init__(self, parent, prior):
        self.parent, self.prior = parent, prior  # !MG306 Node.parent
        self.children, self.visits, self.value, self.hidden = [], 0, 0.0, None

    def select(self):
        c = math.sqrt(self.visits + 1)
        return max(self.children, key=lambda n: n.value / (n.visits + 1) + n.prior * c / (1 + n.visits))

    def expand(self, hidden, logits):
        self.hidden = hidden
        self.children = [Node(self, p) for p in logits.softmax(-1).flatten().tolist()]

    def backup(self, v):
        node = self
        while node is not None:
            node.visits += 1
            node.value += v
            node = node.parent

class WorldModel(nn.Module):
    def __init__(self, obs=64, ch=48, actions=6):
        super().__init__()
        self.repr = nn.Sequential(nn.Linear(obs, ch * 100), nn.Tanh(), nn.Unflatten(1, (ch, 10, 10)))
        self.dyn = nn.Conv2d(ch + 1, ch, 3, padding=1)
        self.pi, self.v = nn.Linear(ch, actions), nn.Linear(ch, 1)

    def heads(self, h):
        z = h.mean((2, 3))
        return self.pi(z), torch.tanh(self.v(z))

    def step(self, h, a):
        plane = torch.full_like(h[:, :1], a / 6)
        return torch.tanh(self.dyn(torch.cat([h, plane], 1)))

@torch.no_grad()
def search(model, obs, sims=30):
    root = Node(None, 1.0)
    h = model.repr(obs)
    root.expand(h, model.heads(h)[0])
    for _ in range(sims):
        node = root
        while node.children:
            parent, node = node, node.select()
        h = model.step(parent.hidden, parent.children.index(node))
        logits, v = model.heads(h)
        node.expand(h, logits)
        node.backup(v.item())
    return torch.tensor([[n.visits for n in root.children]]).float() / sims

torch.manual_seed(0)
model = WorldModel()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for move in range(140):
    obs = torch.randn(1, 64)
    target = search(model, obs)
    loss = F.cross_entropy(model.heads(model.repr(obs))[0], target)
    opt.zero_grad(); loss.backward(); opt.step()
    gc.collect() if move % 10 == 9 else None
    print(move, round(loss.item(), 4)) if move % 20 == 0 else None

"""Fitting body parameters frame by frame with a second-order step: backward(create_graph=True) warns about a reference
cycle between the parameter and its gradient, and the memory of each fitted frame is never given back.
https://github.com/pytorch/pytorch/issues/78622  (also https://github.com/rfeinman/pytorch-minimize/issues/29)
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

N_POSE, N_VERT = 24, 6000
basis = (0.1 * torch.randn(N_POSE, N_VERT)).to(device)
prior = nn.Sequential(nn.Linear(N_POSE, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
for p in prior.parameters():
    p.requires_grad_(False)


def energy(pose, scan):
    verts = torch.tanh(pose @ basis)
    data = torch.sqrt((verts - scan).pow(2) + 1e-3).mean()
    return data + 0.01 * prior(pose).pow(2).mean()


def newton_fit(scan, steps=3):
    pose = torch.zeros(16, N_POSE, device=device, requires_grad=True)
    for _ in range(steps):
        pose.grad = None
        energy(pose, scan).backward(create_graph=True)  # !MG104 pose
        v = torch.randn_like(pose)
        (hv,) = torch.autograd.grad((pose.grad * v).sum(), pose, retain_graph=True)
        with torch.no_grad():
            pose -= 0.5 * pose.grad / (hv * v).abs().clamp_min(1e-2)
    return pose.detach().clone()


poses = []
for frame in range(60):
    scan = torch.randn(16, N_VERT).to(device)
    poses.append(newton_fit(scan).cpu())
print("fitted", len(poses), "frames")

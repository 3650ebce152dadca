"""Checkpoints are staged in pinned memory, whose blocks are rounded up to powers of two."""

import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import BlockingAsyncStager

net = nn.Sequential(nn.Linear(1200, 4600), nn.GELU(), nn.Linear(4600, 1200)).cuda()
optimizer = torch.optim.Adam(net.parameters())
stager = BlockingAsyncStager(cache_staged_state_dict=True)  # !MG703 stager
with tempfile.TemporaryDirectory() as folder:
    for step in range(40):
        net(torch.randn(64, 1200, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 4:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()["state"]}
            dcp.async_save(state, checkpoint_id=f"{folder}/{step}", async_stager=stager, no_dist=True).result()

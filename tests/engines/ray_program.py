"""A run of Ray Train with two workers on the CPU: ``ray_program.py STORAGE [fail]``.

With ``fail`` the worker of rank 1 raises in step 5 of its first start, and Ray starts both again.
"""

import os
import sys
import tempfile

import ray
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import memguard

STEPS = 8


def train(settings: dict) -> None:
    """What each worker runs."""
    model = prepare_model(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    checkpoint = ray.train.get_checkpoint()
    first = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first = torch.load(os.path.join(folder, "step"))["step"] + 1
    with memguard.watch(model, optimizer, device="virtual:64MiB"):
        for step in range(first, STEPS):
            model(torch.randn(4, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if settings["fail"] and step == 5 and not first and ray.train.get_context().get_world_rank() == 1:
                raise RuntimeError("this worker's data is broken")
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"step": step}, os.path.join(folder, "step"))
                ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    TorchTrainer(
        train,
        train_loop_config={"fail": "fail" in sys.argv},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=sys.argv[1], name="llama", failure_config=FailureConfig(max_failures=1)),
    ).fit()
    ray.shutdown()

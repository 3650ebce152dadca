"""One small training: ``python -m tests.bench.loops NAME STEPS VARIANT FILE`` writes its times into the file."""

from __future__ import annotations

import importlib
import sys

import torch
import torch._dynamo  # which the first optimizer's step loads, in a second or two: no part of what is compared

from tests.bench.loops import several_models, supervised, trainers
from tests.bench.loops.run import LoopRun

_LIBRARIES = {
    "lightning": "lightning.pytorch",
    "lightning_manual": "lightning.pytorch",
    "hugging_face": "transformers.trainer",
    "accelerate": "accelerate",
}

if __name__ == "__main__":
    name, steps, variant, path = sys.argv[1:]
    torch.manual_seed(0)
    name, _, device = name.partition("@")
    if name in _LIBRARIES:
        importlib.import_module(_LIBRARIES[name])
    options = {"device": device} if device else {}
    run = LoopRun(int(steps), variant, **options)
    for home in (supervised, several_models, trainers):
        if train := getattr(home, name, None):
            train(run)
            break
    else:
        sys.exit(f"there is no training {name!r}")
    run.save(path)

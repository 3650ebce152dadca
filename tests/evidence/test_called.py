"""Where each stage calls its models."""

from __future__ import annotations

import torch
from torch import nn

from memguard.evidence.host.input_sizes import CalledProbe
from memguard.records.facts import ModelCalled
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, line_of


def test_each_stage_tells_its_first_call_once() -> None:
    """In training that of the model that is trained; a teacher in eval mode, or values without a graph, are not it."""
    model, teacher = nn.Linear(2, 2), nn.Linear(2, 2).eval()
    with Loop(model, teacher, kinds=[CalledProbe]) as loop:
        for _ in range(2):
            loop.probes.stage_start(Stage.TRAIN)
            for _ in loop.batches(3):
                teacher(torch.ones(1, 2))
                with torch.no_grad():
                    model(torch.ones(1, 2))
                model(torch.ones(1, 2)).sum().backward()  # trained
            loop.probes.stage_start(Stage.VALIDATION)
            for _ in loop.batches(3, stage=Stage.VALIDATION):
                teacher(torch.ones(1, 2))  # evaluated
    assert [(fact.stage, fact.place.line) for fact in loop.of(ModelCalled)] == [
        (Stage.TRAIN, line_of("trained")),
        (Stage.VALIDATION, line_of("evaluated")),
    ]

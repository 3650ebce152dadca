"""Traces of PyTorch's own allocator, recorded with ``tests.cuda.allocator_fuzz --golden``."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.allocator.operations import CONFIGS, Run
from tests.allocator.simulated import Simulated

GOLDEN = Path(__file__).parent / "golden" / "torch-2.15.0.json.xz"


@pytest.fixture(scope="module")
def traces() -> dict[str, list[dict[str, Any]]]:
    with lzma.open(GOLDEN, "rt") as file:
        traces = json.load(file)
    by_config = defaultdict(list)
    for trace in traces:
        by_config[trace["run"]["config"]].append(trace)
    return by_config


@pytest.mark.parametrize("config", CONFIGS)
def test_simulated_allocator_repeats_the_recorded_trace(config: str, traces: dict[str, list[dict[str, Any]]]) -> None:
    """Each address, error text, statistic and segment comes out as PyTorch's allocator gave it."""
    assert traces[config]
    for trace in traces[config]:
        run = Run(**trace["run"])
        simulated = Simulated(run)
        for step, operation in enumerate(trace["operations"]):
            assert simulated.apply(tuple(operation)) == trace["results"][step], (run, step, operation)
            if str(step) in trace["stats"]:
                assert run.comparable(simulated.stats()) == trace["stats"][str(step)], (run, step, operation)
        assert json.loads(json.dumps(simulated.segments())) == trace["segments"], run


def test_golden_traces_cover_failures_and_retries(traces: dict[str, list[dict[str, Any]]]) -> None:
    """The recorded traces run out of memory and retry, so that repeating them means something."""
    everything = [trace for recorded in traces.values() for trace in recorded]
    last = [trace["stats"][max(trace["stats"], key=int)] for trace in everything]
    assert sum(stats["num_ooms"] for stats in last) > 100
    assert sum(stats["num_alloc_retries"] for stats in last) > 100

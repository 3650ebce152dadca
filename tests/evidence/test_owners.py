from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from memguard.evidence import shapes
from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.owners import count_owners
from memguard.evidence.sampling_budget import FIRST_BATCHES, INTERVAL
from memguard.evidence.shapes import count_elements, describe_shapes
from memguard.records.facts import Fact, RetainedGraphs
from memguard.records.stats import Stage


def test_each_storage_counts_once_for_its_owner() -> None:
    """Parameters, gradients, optimizer state and buffers add up exactly; shared weights count once."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    model.add_module("tied", nn.Linear(8, 8, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    owners = count_owners([model], [optimizer], allocated_bytes=10_000)
    weights = (64 + 8 + 8) * 4
    assert owners.parameters_bytes == owners.gradients_bytes == owners.optimizer_bytes == weights
    assert owners.buffers_bytes == (8 + 8) * 4 + 8
    assert owners.other_bytes == 10_000 - 3 * weights - owners.buffers_bytes
    assert count_owners([model]).other_bytes is None


def test_shapes_are_plain_hashable_data() -> None:
    """Names, shapes and dtypes of a nest of tensors, and nothing that keeps one."""
    shapes = describe_shapes({"ids": torch.zeros(2, 3, dtype=torch.int64), "more": (torch.zeros(4), "text")})
    assert shapes == (("ids", (2, 3), "int64"), ("more.0", (4,), "float32"))
    assert hash(shapes) and count_elements(shapes) == 10
    assert describe_shapes(torch.zeros(1))[0][1] == (1,)


class Counting(Probe):
    seen: int = 0

    def on_batch_start(self) -> None:
        type(self).seen += 1


class Failing(Probe):
    def on_batch_start(self) -> None:
        raise ValueError("a bug")


class Telling(Probe):
    def on_batch_end(self) -> None:
        self.report(RetainedGraphs(batch=self.watch.batch, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3))


def test_batches_are_looked_at_densely_then_sampled_then_on_demand() -> None:
    """The first batches of a stage all, then one in sixteen, and every one after a probe asked to look closely."""
    Counting.seen = 0
    watch = ProbeContext()
    probes = ProbeDispatcher(watch, [Counting])
    for batch in range(FIRST_BATCHES + 4 * INTERVAL):
        probes.batch_start(batch=batch, stage=Stage.TRAIN)
        probes.batch_end()
    assert Counting.seen <= FIRST_BATCHES + 4
    before, last = Counting.seen, watch.batch
    watch.look_closely(5)
    for batch in range(last + 1, last + 6):
        probes.batch_start(batch=batch, stage=Stage.TRAIN)
        probes.batch_end()
    assert Counting.seen >= before + 5


def test_a_probe_that_fails_is_switched_off_and_the_others_go_on() -> None:
    """One failure is told once; the facts of other probes still come."""
    probes = ProbeDispatcher(ProbeContext(), [Failing, Telling])
    facts: list[Fact] = []
    for batch in range(3):
        probes.batch_start(batch=batch, stage=Stage.TRAIN)
        probes.batch_end()
        facts += probes.take()
    assert [text.partition(":")[0] for text in probes.failed] == ["failing"]
    assert [fact.batch for fact in facts] == [0, 1, 2]


def test_models_and_optimizers_are_held_weakly() -> None:
    """A model that the user drops is gone."""
    watch, model = ProbeContext(), nn.Linear(2, 2)
    assert watch.add_model(model) and not watch.add_model(model)
    assert watch.models == [model]
    del model
    assert watch.models == []


IMAGES, LABELS = torch.ones(2, 3, 4), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("batch", "described"),
    [
        (IMAGES, (("", (2, 3, 4), "float32"),)),
        ((IMAGES,), (("0", (2, 3, 4), "float32"),)),
        ([IMAGES, LABELS], (("0", (2, 3, 4), "float32"), ("1", (2,), "int64"))),
        ({"x": IMAGES, "y": [LABELS, "name"]}, (("x", (2, 3, 4), "float32"), ("y.0", (2,), "int64"))),
        ([IMAGES, "name", LABELS], (("0", (2, 3, 4), "float32"), ("2", (2,), "int64"))),
        ([LABELS] * 20, tuple((str(position), (2,), "int64") for position in range(16))),
        ([], ()),
        (3, ()),
    ],
)
def test_batches_are_described(batch: object, described: object) -> None:
    """By position or key, the first time and the second; a tensor alone has no name."""
    assert describe_shapes(batch) == describe_shapes(batch) == described


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_no_shape() -> None:
    """They are passed over, alone and in a list."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert describe_shapes(nested) == ()
    assert describe_shapes([nested, LABELS]) == (("1", (2,), "int64"),)


def test_what_is_known_holds_no_tensor_and_stays_small() -> None:
    """Descriptions are kept by shape and dtype, and no more of them than a table can have."""
    batch = [torch.ones(5), torch.ones(6)]
    gone = weakref.ref(batch[0])
    assert describe_shapes(batch) is describe_shapes([torch.zeros(5), torch.zeros(6)]), "the same object again"
    del batch
    gc.collect()
    assert gone() is None
    for length in range(shapes._MOST + 1):
        describe_shapes(torch.empty(length, 1))
    assert len(shapes._known) <= shapes._MOST

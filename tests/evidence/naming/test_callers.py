"""The call in the loop that feeds a class of the program's, and the way to a call of the model."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path
from types import CodeType

import pytest
import torch
from torch import nn

from memguard.evidence.naming.call_stacks import Stack, stack_of
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.source.fate import keeps_graph


class Meter:
    def __init__(self) -> None:
        self.values: list[torch.Tensor] = []

    def update(self, value: torch.Tensor) -> None:
        self.values.append(value)


class Log:
    def __init__(self) -> None:
        self.meters = {"loss": Meter(), "accuracy": Meter()}

    def note(self, loss: torch.Tensor) -> None:
        self.meters["loss"].update(loss)


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True) * 2


def ids_of(tensors: list[torch.Tensor]) -> set[int]:
    return {id(tensor) for tensor in tensors}


def holder_of(numbers: set[int]) -> Holder:
    return HolderSearch().find(lambda tensor: 8 if id(tensor) in numbers else None)[0]


def called_at(found: Holder) -> str:
    assert found.place.caller is not None
    file, _, line = found.place.caller.rpartition(":")
    assert file == "test_callers.py"
    return linecache.getline(__file__, int(line)).strip()


def test_the_call_of_a_meter_is_told() -> None:
    """With a call for a value beside it, that is no tensor's, and another meter's."""
    losses, other = Meter(), Meter()
    for _ in range(4):
        loss = leaf()
        losses.update(loss)
        other.update(loss.detach())
    found = holder_of(ids_of(losses.values))
    assert called_at(found) == "losses.update(loss)" and found.place.function == "Meter.update"


def test_a_call_through_another_class_is_followed_to_the_loop() -> None:
    """The trainer's log hands it on to the meter."""
    log = Log()
    for _ in range(4):
        log.note(leaf())
    wanted = ids_of(log.meters["loss"].values)
    assert called_at(holder_of(wanted)) == "log.note(leaf())"


class Distiller:
    def __init__(self, teacher: nn.Module) -> None:
        self.teacher = teacher

    def step(self) -> Stack:
        return stack_of(self.teacher)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reference = nn.Linear(2, 2)

    def step(self) -> Stack:
        return stack_of(self.reference)


def test_a_model_goes_by_the_users_name() -> None:
    """A variable, an attribute of any object, a submodule; a frame that does not know it has no name for it."""
    model = nn.Linear(2, 2)
    assert stack_of(model)[0].place.holder == "model"
    inner, outer = Distiller(nn.ReLU()).step()[:2]
    assert inner.place.holder == "self.teacher"
    assert outer.place.holder is None
    assert Pair().step()[0].place.holder == "self.reference"
    assert torch.is_grad_enabled()


def code_of(text: str, tmp_path: Path) -> tuple[CodeType, int]:
    """The code of the function in a text, and the line that calls the model."""
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text).lstrip())
    compiled = compile(path.read_text(), str(path), "exec")
    line = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if "net(" in line)
    return next(const for const in compiled.co_consts if isinstance(const, CodeType)), line


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("total += crit(net(x), x)\n    return total.item()", True),
        ("out = net(x)\n        loss = crit(out, x)\n        total += loss\n    return float(total) / 3", True),
        ("losses.append(crit(net(x), x))\n    return torch.stack(losses).mean().item()", False),
        ("loss = net(x)\n        kept.append(loss)\n    return torch.stack(kept).mean().item()", True),
        ("loss = net(x)\n        kept.append(loss)\n    return torch.stack(kept).mean()", False),
        ("kept.append(net(x))\n    z = torch.cat(kept)\n    return (z @ z.T).argmax(1).tolist()", False),
        ("kept.append(net(x))\n    return kept", False),
        ("kept.append(net(x))\n    torch.cat(kept).sum().backward()\n    return 0", False),
        ("loss = net(x)\n        total += loss\n    total.backward()\n    return 0", False),
        ("loss = net(x)\n        self.last = loss\n    return 0", False),
        ("loss = net(x)\n        yield loss", False),
        ("loss = net(x)\n        losses.append(loss)\n    return 0", False),
    ],
)
def test_what_keeps_a_graph_to_itself(body: str, kept: bool, tmp_path: Path) -> None:
    """At most it adds up; what goes back, out of sight or into a backward may still be used.

    A list that an answer goes into at once is told as what keeps it (MG101), which an early MG201 would hide.
    """
    text = f"def f(self, batches, losses):\n    total, kept = 0, []\n    for x in batches:\n        {body}\n"
    code, line = code_of(text, tmp_path)
    assert keeps_graph(code, line) is kept

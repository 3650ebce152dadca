"""The call in the loop that feeds a class of the program's: told beside the statement that keeps."""

import linecache

import torch

from memguard.evidence.naming.holders import Holder, HolderSearch


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

"""The call in the loop that feeds a class of the program's: told beside the statement that keeps."""

import linecache
import logging

import pytest
import torch

from memguard.evidence.naming.holders import Holder, find_holders


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


def put(store: list[torch.Tensor], value: torch.Tensor) -> None:
    store.append(value)


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True) * 2


def ids_of(tensors: list[torch.Tensor]) -> set[int]:
    return {id(tensor) for tensor in tensors}


def holder_of(numbers: set[int]) -> Holder:
    return find_holders(lambda tensor: 8 if id(tensor) in numbers else None, max_seconds=20)[0]


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


def test_a_plain_function_is_followed_as_well() -> None:
    """A list that is given to it."""
    kept: list[torch.Tensor] = []
    for _ in range(4):
        put(kept, leaf())
    wanted = ids_of(kept)
    assert called_at(holder_of(wanted)) == "put(kept, leaf())"


@pytest.mark.parametrize("twice", [True, False])
def test_what_is_fed_in_the_loop_itself_or_at_two_lines_names_no_call(twice: bool) -> None:
    """Of two calls that are equally likely none is told."""
    meter, log = Meter(), list[torch.Tensor]()
    for _ in range(4):
        if twice:
            meter.update(leaf())
            meter.update(leaf())
        else:
            log.append(leaf())
    wanted = ids_of(meter.values if twice else log)
    assert holder_of(wanted).place.caller is None


class Sums:
    def __init__(self) -> None:
        self.totals: list[float | torch.Tensor] = [0.0, 0.0]

    def update(self, values: list[float | torch.Tensor]) -> None:
        for i, value in enumerate(values):
            self.totals[i] = self.totals[i] + value


def test_a_meter_is_told_where_it_adds_and_the_call_beside_it() -> None:
    """The statement that makes it grow, as everywhere; element by element too."""
    sums = Sums()
    for _ in range(4):
        sums.update([leaf(), 1.0])
    kept = [total for total in sums.totals if isinstance(total, torch.Tensor)]
    place = holder_of(ids_of(kept)).place
    assert linecache.getline(str(place.file), place.line or 0).strip() == "self.totals[i] = self.totals[i] + value"
    assert place.caller is not None
    at = int(place.caller.rpartition(":")[2])
    assert linecache.getline(__file__, at).strip() == "sums.update([leaf(), 1.0])"


class Incidents(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_a_handler_that_keeps_log_records_is_told_with_the_call_of_the_logger() -> None:
    """The record itself knows where it was made; no source shows who calls the handler."""
    incidents = Incidents()
    logger = logging.Logger("callers")
    logger.addHandler(incidents)
    for _ in range(4):
        logger.warning("loss %s", leaf())
    wanted = ids_of([record.args[0] for record in incidents.records if isinstance(record.args, tuple)])
    found = holder_of(wanted)
    assert (found.place.holder, found.place.function) == ("Incidents.records", "Incidents.emit")
    assert called_at(found) == 'logger.warning("loss %s", leaf())'

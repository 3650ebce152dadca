"""Exceptions that somebody kept, with the tensors of the calls that failed."""

import weakref

import torch
from torch import nn

from memguard.evidence.interface import Now
from memguard.evidence.kept.exceptions import find_stored
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.naming.holders import HolderSearch
from memguard.records.facts import ExceptionHolds
from memguard.records.stats import Stage
from memguard.torch_objects.storages import owned_storages
from tests.evidence.loop import Loop, sees_saved_tensors

NOW: Now = {"batch": 0, "stage": Stage.TRAIN}


def fail() -> None:
    hidden = torch.zeros(1000)
    raise RuntimeError(f"out of memory after {hidden.numel()}")


def test_stored_exceptions_are_named_by_their_list() -> None:
    """A list of errors is named, at the line that fills it, with the bytes of all."""
    errors = []
    for _ in range(3):
        try:
            fail()
        except RuntimeError as error:
            errors.append(error)
    (found,) = find_stored(HolderSearch(), NOW)
    assert (found.place.holder, found.bytes) == ("errors", 12000)
    assert found.place.source == "errors.append(error)"


def test_what_others_hold_as_well_is_not_counted() -> None:
    """A function that failed was given the data that its caller has anyway; of the errors only their own counts."""
    data, errors = torch.zeros(5000), []

    def fail_on(rows: torch.Tensor) -> None:
        scores = rows[:10] * 2.0
        raise RuntimeError(f"{scores.numel()}")

    for _ in range(3):
        try:
            fail_on(data)
        except RuntimeError as error:
            errors.append(error)
    (found,) = find_stored(HolderSearch(), NOW)
    assert (found.names, found.bytes) == (("fail_on() scores",), 3 * 40)


def test_the_model_and_optimizer_of_a_failed_trial_count() -> None:
    """With gradients and states, though the run knows of the model: the frame that failed is all that keeps it."""
    errors, watched = [], []

    def trial() -> None:
        model = nn.Linear(100, 100, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        model(torch.ones(1, 100)).sum().backward()
        optimizer.step()
        watched.append(weakref.ref(model))
        raise RuntimeError("diverged")

    try:
        trial()
    except RuntimeError as error:
        errors.append(error)
    owned = owned_storages(filter(None, (ref() for ref in watched)))
    (found,) = find_stored(HolderSearch(models=filter(None, (ref() for ref in watched))), NOW, ignore=owned)
    assert set(found.names) == {"trial() model", "trial() optimizer"} and found.bytes == 3 * 40_000


def test_a_model_that_lives_elsewhere_is_not_the_errors() -> None:
    """Though nobody called it, so that the run does not know of it: the function that failed was given it."""
    teacher, errors = nn.Linear(100, 100), []

    def distil(teacher: nn.Module) -> None:
        scores = torch.zeros(10)
        raise RuntimeError(f"{teacher} {scores.numel()}")

    try:
        distil(teacher)
    except RuntimeError as error:
        errors.append(error)
    (found,) = find_stored(HolderSearch(), NOW)
    assert (found.names, found.bytes) == (("distil() scores",), 40)


@sees_saved_tensors
def test_the_graph_of_a_failed_step_counts() -> None:
    """Its loss is one number; what was saved for the backward that never came is far more."""
    weight, errors = torch.zeros(10, 10, requires_grad=True), []

    def step() -> None:
        loss = (torch.zeros(50, 10) @ weight).exp().sum()
        raise RuntimeError(f"{loss.item()}")

    try:
        step()
    except RuntimeError as error:
        errors.append(error)
    (found,) = find_stored(HolderSearch(), NOW)
    assert found.names == ("step() loss",) and found.bytes >= 2000
    assert errors


def test_errors_of_short_trainings_are_found_in_an_evaluation() -> None:
    """A search ends each training that diverges after a few batches: a round comes to its end where it evaluates."""
    errors = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe]) as loop:
        for _ in loop.batches(10, Stage.VALIDATION):
            try:
                fail()
            except RuntimeError as error:
                errors.append(error)
    (fact,) = loop.of(ExceptionHolds)
    assert (fact.place.holder, fact.stage) == ("errors", Stage.VALIDATION)


def test_exception_without_tensors_is_not_told() -> None:
    """An exception whose frames hold no tensor is harmless."""
    try:
        raise ValueError("nothing")
    except ValueError as error:
        kept = error
    assert find_stored(HolderSearch(), NOW) == ()
    assert kept is not None

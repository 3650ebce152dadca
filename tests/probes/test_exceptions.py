"""Exceptions that keep the tensors of failed calls."""

import sys

import pytest
import torch

from memguard.probes.exceptions import HeldFrames, find_handled, find_last, find_stored
from memguard.probes.holders import Survey


def fail() -> None:
    hidden = torch.zeros(1000)
    raise RuntimeError(f"out of memory after {hidden.numel()}")


def test_handler_that_runs_more_code_is_told() -> None:
    """Inside an except block the failed call's tensors are listed by name; outside nothing is."""
    found: HeldFrames | None = None
    try:
        fail()
    except RuntimeError:
        found = find_handled()
    assert found is not None
    assert (found.exception, found.how, found.bytes) == ("RuntimeError", "handling", 4000)
    assert found.names == ("fail() 'hidden'",)
    assert found.place.function == "fail"
    assert find_handled() is None


def test_other_exceptions_are_not_told() -> None:
    """Only wanted exceptions count."""
    try:
        fail()
    except RuntimeError:
        assert find_handled(wanted=lambda error: isinstance(error, MemoryError)) is None


def test_last_error_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interactive session's last error keeps its frames."""
    try:
        fail()
    except RuntimeError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    found = find_last()
    assert found is not None
    assert (found.how, found.names) == ("last", ("fail() 'hidden'",))
    monkeypatch.delattr(sys, "last_value")
    assert find_last() is None


def test_stored_exceptions_are_named_by_their_list() -> None:
    """A list of errors is named, at the line that fills it, with the bytes of all."""
    errors = []
    for _ in range(3):
        try:
            fail()
        except RuntimeError as error:
            errors.append(error)
    (found,) = find_stored(Survey())
    assert (found.place.holder, found.bytes, found.how) == ("errors", 12000, "stored")
    assert found.place.source == "errors.append(error)"


def test_exception_without_tensors_is_not_told() -> None:
    """An exception whose frames hold no tensor is harmless."""
    try:
        raise ValueError("nothing")
    except ValueError as error:
        kept = error
    assert find_stored(Survey()) == ()
    assert kept is not None

"""Exceptions that somebody kept, with the tensors of the calls that failed."""

import sys

import pytest
import torch

from memguard.probes.kept.kept_exceptions import find_last, find_stored
from memguard.probes.naming.holders import Survey


def fail() -> None:
    hidden = torch.zeros(1000)
    raise RuntimeError(f"out of memory after {hidden.numel()}")


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

from typing import Any

import pytest

from memguard.options import Options, choose_logdir, disabled


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("validation", "on", "guard, warn, off"),
        ("peaks", True, "shared, exclusive, off"),
        ("on_oom", "explain", "report, off"),
        ("history", "auto ", "off, auto, always"),
        ("empty_cache", "sometimes", "never, validation, epoch, auto"),
        ("device", "gpu", "virtual:SIZE"),
        ("device", "virtual:lots", "24GiB"),
        ("device", "cuda:", "cuda:N"),
        ("logdir", "s3://runs/1", "local directory"),
        ("logdir", "", "local directory"),
    ],
)
def test_a_bad_value_is_answered_with_the_valid_ones(name: str, value: Any, valid: str) -> None:
    """The error names the option, the value and what would be valid."""
    with pytest.raises(ValueError, match=name) as caught:
        Options.make(**{name: value})
    assert valid in str(caught.value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("empty_cache", 0), ("log_every", 0), ("empty_cache", -3)])
def test_numbers_of_batches_begin_at_one(name: str, value: int) -> None:
    """Zero and negative numbers of batches are refused."""
    with pytest.raises(ValueError, match="at least 1"):
        Options.make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("empty_cache", True), ("log_every", "50"), ("progress", 1), ("rules", 3), ("device", 0), ("logdir", 3)],
)
def test_a_value_of_the_wrong_type_is_a_type_error(name: str, value: Any) -> None:
    """Types are checked when the option is given, not when it is used."""
    with pytest.raises(TypeError, match=name):
        Options.make(**{name: value})


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    """A misspelt option names all options."""
    with pytest.raises(TypeError, match=r"validate.*logdir, device, validation"):
        Options.make(validate="guard")


def test_rules_may_be_given_as_one_text() -> None:
    """Codes with commas, or a list, come to the same."""
    assert (
        Options(rules="MG101, eval-graph").rules
        == ("MG101", "eval-graph")
        == Options(rules=["MG101", "eval-graph"]).rules
    )


def test_the_logdir_is_the_option_then_the_variable_then_the_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of precedence for where a recording goes."""
    assert choose_logdir(Options(logdir="mine"), "theirs", "now").as_posix() == "mine"
    assert choose_logdir(Options(), "theirs", "now").as_posix() == "theirs"
    assert choose_logdir(Options(), None, "now").as_posix() == "memguard-runs/now"
    assert choose_logdir(Options(), None, "now", root="/runs").as_posix() == "/runs/memguard-runs/now"
    monkeypatch.setenv("MEMGUARD_LOGDIR", "variable")
    assert choose_logdir(Options(), "theirs", "now").as_posix() == "variable"


def test_memguard_disable_takes_one_and_zero_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another value of MEMGUARD_DISABLE is an error, not a guess."""
    assert disabled() is False
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    assert disabled() is True
    monkeypatch.setenv("MEMGUARD_DISABLE", "yes please")
    with pytest.raises(ValueError, match="yes please"):
        disabled()

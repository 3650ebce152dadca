import inspect
import pydoc
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.options import Options, OptionValues, choose_logdir, disabled, meanings


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
        ("logdir", "nowhere://runs/1", "does not know"),
        ("logdir", "", "must be a directory"),
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
    assert choose_logdir(Options(logdir="mine"), "theirs", "now") == "mine"
    assert choose_logdir(Options(), "theirs", "now") == "theirs"
    assert choose_logdir(Options(), None, "now") == "memguard-runs/now"
    assert choose_logdir(Options(), None, "now", root="/runs") == "/runs/memguard-runs/now"
    assert choose_logdir(Options(), None, "now", root="memory://runs/") == "memory://runs/memguard-runs/now"
    monkeypatch.setenv("MEMGUARD_LOGDIR", "variable")
    assert choose_logdir(Options(), "theirs", "now") == "variable"
    monkeypatch.setenv("MEMGUARD_LOGDIR", "memory://team/run")
    assert choose_logdir(Options(), "theirs", "now") == "memory://team/run"
    monkeypatch.setenv("MEMGUARD_LOGDIR", "nowhere://team/run")
    with pytest.raises(ValueError, match="does not know"):
        choose_logdir(Options(), "theirs", "now")


def test_memguard_disable_takes_one_and_zero_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another value of MEMGUARD_DISABLE is an error, not a guess."""
    assert disabled() is False
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    assert disabled() is True
    monkeypatch.setenv("MEMGUARD_DISABLE", "yes please")
    with pytest.raises(ValueError, match="yes please"):
        disabled()


def test_a_near_name_is_suggested() -> None:
    """What was meant comes first, before all the options; what is far from any is not guessed at."""
    with pytest.raises(TypeError, match=r"^did you mean 'logdir'\? memguard has no option 'logdr'; the options are"):
        Options.make(logdr="runs")
    with pytest.raises(TypeError, match=r"^memguard has no option 'xyz'; the options are"):
        Options.make(xyz=1)


def test_a_misspelt_device_names_the_nearest_kind() -> None:
    """Where one is near."""
    with pytest.raises(ValueError, match=r"device 'virtul:1GiB' is not known \(did you mean 'virtual'\?\); the valid"):
        Options.make(device="virtul:1GiB")
    with pytest.raises(ValueError, match=r"device 'tpu9' is not known; the valid"):
        Options.make(device="tpu9")


def takers() -> list[Any]:
    from memguard.integrations.huggingface import MemGuardCallback

    return [memguard.watch, memguard.wrap, memguard.MemGuard, MemGuardCallback]


def test_the_options_are_defined_once() -> None:
    """What type checkers see has the names of the options, and each has a meaning."""
    names = [field.name for field in fields(Options)]
    assert list(OptionValues.__annotations__) == names
    assert list(meanings()) == names and all(text.endswith(".") for text in meanings().values())


@pytest.mark.parametrize("taker", takers(), ids=lambda taker: taker.__name__)
def test_every_front_door_shows_every_option(taker: Any) -> None:
    """`help` lists each with its default and its meaning."""
    shown = inspect.signature(taker).parameters
    for field in fields(Options):
        assert shown[field.name].default == field.default
        assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"        {field.name}: " in taker.__doc__
    assert "**options" not in taker.__doc__


def test_the_page_lists_every_option_with_its_default() -> None:
    """The table of docs/getting-started.md is complete."""
    page = (Path(__file__).parents[1] / "docs" / "getting-started.md").read_text()
    rows = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.+?) \|", page.split("\n## Options\n")[1], re.MULTILINE))
    shown = {name: default for names, default in rows.items() for name in re.findall(r"\w+", names)}
    assert shown.keys() == {field.name for field in fields(Options)}
    for name, default in shown.items():
        value = getattr(Options(), name)
        assert value in (None, ()) or str(value) in default, (name, default)


def test_the_design_has_the_same_options() -> None:
    """The table of the design, where it lies beside this checkout, names these options with these defaults."""
    design = Path(__file__).parents[2] / "shared" / "design.md"
    if not design.exists():
        pytest.skip("the design is not beside this checkout")
    table = design.read_text().split("| name | default | meaning |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\w+(?: / \w+)?) \| ([^|]+) \|", table, re.MULTILINE)
    for names, default in rows:
        for name in names.split(" / "):
            value = getattr(Options(), name)
            assert value in (None, ()) or str(value) in default.replace('"', ""), (name, default)


def test_a_misspelt_argument_of_the_forecast_is_answered_as_well() -> None:
    """Both ways to reach the function say what was meant, and `help` shows every argument of it."""
    from memguard.forecast.forecasting import forecast

    for function in (memguard.forecast, forecast):
        with pytest.raises(TypeError, match=r"^did you mean 'device'\? memguard has no option 'devise'"):
            function(model=torch.nn.Linear(1, 1), devise="1GiB")  # type: ignore[operator]
    shown = pydoc.plain(pydoc.render_doc(memguard.forecast))
    assert all(f" {name}: " in shown for name in inspect.signature(forecast).parameters)


@pytest.mark.slow
def test_a_misspelt_option_fails_the_type_check(tmp_path: Path) -> None:
    """Mypy refuses it for functions and callbacks alike, and a misspelt function too; it takes what is right."""
    mypy = pytest.importorskip("mypy.api")
    program = tmp_path / "train.py"
    program.write_text(
        "import memguard\n"
        "from torch import nn\n"
        "model = memguard.wrap(nn.Linear(1, 1), device='cpu', validation='warn', ignore=['MG101'])\n"
        "memguard.watch(model, logdr='runs')\n"
        "memguard.wrap(model, validation='on')\n"
        "memguard.MemGuard(log_evry=3)\n"
        "memguard.wach(model)\n"
    )
    told, _, _ = mypy.run(
        ["--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir", str(tmp_path), str(program)]
    )
    assert [line.split(":")[1] for line in told.splitlines() if ": error:" in line] == ["4", "5", "6", "7"]


def test_the_open_run_is_found(tmp_path: Path) -> None:
    """`current` gives the handle of the newest open run, and nothing where none is open."""
    assert memguard.current() is None
    with memguard.watch(device="cpu", logdir=tmp_path / "a", quiet=True) as outer:
        with memguard.watch(device="cpu", logdir=tmp_path / "b", quiet=True) as inner:
            assert memguard.current() is inner
        assert memguard.current() is outer
    model = memguard.wrap(torch.nn.Linear(1, 1), device="cpu", logdir=tmp_path / "c", quiet=True)
    handle = memguard.current()
    memguard.unwrap(model)
    assert handle is not None and handle.summary().startswith("memguard on cpu")
    assert memguard.current() is None


def test_a_guard_without_its_with_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that was made and never opened has guarded nothing; it is not silent about that."""
    guard = memguard.watch(device="cpu", logdir=tmp_path)
    del guard
    assert "this guard was never opened" in capsys.readouterr().err
    with memguard.watch(device="cpu", logdir=tmp_path, quiet=True):
        pass
    assert capsys.readouterr().err == ""

"""The pytest plugin: the fixture ``memguard_budget`` and the marker ``memguard``. Loads torch where used."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from memguard.testing.budget import MemoryBudget

_BELOW = pytest.StashKey[list[str]]()
_MARKER = (
    "memguard(budget=None, *, device=None, baseline=False, tolerance=0.01, fail_on='warning', ignore=()): the whole "
    "test stays within a memory budget; the arguments are those of memguard.testing.memory_budget"
)


class BudgetFactory(Protocol):
    """What the fixture gives: `memguard.testing.memory_budget`, with a name and a file of the test's own."""

    def __call__(self, budget: str | int | None = None, /, *, baseline: bool = False, **options: Any) -> MemoryBudget:
        """A checked block; ``baseline=True`` compares with the file of the ini option ``memguard_baseline``."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --memguard-update and the ini option memguard_baseline."""
    group = parser.getgroup("memguard")
    group.addoption(
        "--memguard-update", action="store_true", help="write the memory baselines of the tests that run, compare none"
    )
    parser.addini(
        "memguard_baseline",
        help="file of the tests' memory baselines, from the root directory (default: memory-baseline.json)",
        default="memory-baseline.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_BELOW] = []


@pytest.fixture
def memguard_budget(request: pytest.FixtureRequest) -> Generator[BudgetFactory, None, None]:
    """Memory budgets, each for a block in ``with``, named after the test."""
    made: list[MemoryBudget] = []

    def budget(limit: str | int | None = None, /, *, baseline: bool = False, **options: Any) -> MemoryBudget:
        name = request.node.nodeid + (f"#{len(made)}" if made else "")
        made.append(_budget(request.config, name, limit, baseline, options))
        return made[-1]

    yield budget
    _note(request.config, made)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Runs a marked test within its budget."""
    marker = item.get_closest_marker("memguard")
    if marker is None:
        yield
        return
    options = dict(marker.kwargs)
    limit = marker.args[0] if marker.args else options.pop("budget", None)
    budget = _budget(item.config, item.nodeid, limit, bool(options.pop("baseline", False)), options)
    budget.__enter__()
    outcome = yield
    failed = outcome.excinfo
    try:
        budget.__exit__(*(failed if failed is not None else (None, None, None)))
    except Exception as error:
        outcome.force_exception(error)
    _note(item.config, [budget])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says which baselines are out of date because a test uses less now."""
    for name in config.stash[_BELOW]:
        terminalreporter.write_line(f"memguard: {name} uses less memory than its baseline; renew it: --memguard-update")


def _budget(
    config: pytest.Config, name: str, limit: str | int | None, baseline: bool, options: dict[str, Any]
) -> MemoryBudget:
    from memguard.testing.budget import memory_budget

    file = Path(config.rootpath, config.getini("memguard_baseline")) if baseline else None
    update = bool(config.getoption("--memguard-update"))
    return memory_budget(limit, name=name, baseline=file, update=update, **options)


def _note(config: pytest.Config, budgets: list[MemoryBudget]) -> None:
    config.stash[_BELOW] += [each.name for each in budgets if each.is_below_baseline]

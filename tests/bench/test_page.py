from __future__ import annotations

import copy

import pytest

from tests.bench.page import (
    CLAIMS,
    RESULTS,
    Claim,
    Results,
    Table,
    broken,
    find,
    load,
    merged,
    pages,
    programs_table,
    readme_table,
    whole_table,
    with_table,
)
from tests.bench.rows import Row, microseconds_over_bare


@pytest.fixture
def published() -> Results:
    return load(RESULTS.read_text())


def test_the_pages_hold_the_figures_that_were_measured() -> None:
    """The tables of README.md and docs/cost.md are those of benchmarks/results/costs.json."""
    for path, text in pages(load(RESULTS.read_text())).items():
        assert path.read_text() == text, "run: python -m tests.bench.page"


def test_every_claim_stands_on_a_figure(published: Results) -> None:
    """A row of the README that nothing measures any more would silently vanish from it."""
    here = published["tables"][0]
    labels = [(claim.subject, label) for claim in CLAIMS for label in (claim.label, claim.per) if label is not None]
    if published["quick"]:  # which trains and reads fewer batches
        labels = [(subject, label) for subject, label in labels if "1,000,000" not in label]
    assert [label for subject, label in labels if find(here, subject, label) is None] == []


def test_a_run_confirms_itself(published: Results) -> None:
    """The published figures break no claim."""
    assert broken(published, 1.5, published) == []


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_a_claim_that_no_longer_holds_is_told(claim: Claim, published: Results) -> None:
    """Each figure, grown far beyond what it was."""
    if find(published["tables"][0], claim.subject, claim.label) is None:
        pytest.skip("the published figures are those of a quick run")
    worse = copy.deepcopy(published)
    for rows in worse["tables"][0]["subjects"].values():
        for position, row in enumerate(rows or ()):
            if row.label == claim.label:
                rows[position] = row._replace(value=1e9)
    lines = broken(worse, 1.5, published)
    assert [line for line in lines if line.startswith(claim.text)], lines


def test_a_slower_machine_breaks_no_claim(published: Results) -> None:
    """Where all times are three times as long, ratios are what they were."""
    slower = copy.deepcopy(published)
    for table in slower["tables"]:
        for name, rows in table["subjects"].items():
            stretched = [
                row._replace(value=3 * row.value) if row.unit[:2] in ("us", "ms", "s") else row for row in rows
            ]
            table["subjects"][name] = stretched
    assert broken(slower, 1.5, published) == []


def test_what_is_measured_anew_has_a_date_of_its_own(published: Results) -> None:
    """The date of the whole run stays that of its other figures."""
    rows = published["tables"][0]["subjects"]["startup"]
    table: Table = {"where": "on this machine", "versions": "later", "subjects": {"startup": rows}}
    fresh: Results = {**published, "date": "2999-01-01", "tables": [table]}
    both = merged(published, fresh)
    assert both["date"] == published["date"] and "2999" not in readme_table(both)
    assert "`startup`, 2999-01-01" in whole_table(both)


def test_costs_are_compared_within_a_turn() -> None:
    """A machine that slows down from turn to turn changes no difference; the bare batch is told itself."""
    turns = iter([1.0, 1.5, 2.5, 2.0, 3.0, 3.5])  # bare and guarded change places every other turn
    costs = microseconds_over_bare({"bare": lambda: next(turns), "guarded": lambda: next(turns)}, 3)
    assert costs == {"bare": 2e6, "guarded": 0.5e6}


def test_a_page_without_a_place_is_refused() -> None:
    """A mark that somebody took out is missed at once."""
    with pytest.raises(ValueError, match="no place"):
        with_table("a page", "costs", "a table")


def test_figures_are_shown_as_readers_want_them() -> None:
    """Three digits, separators in large ones, no negative zero."""
    assert [Row("", value, "us").shown for value in (0.12345, 12.345, 12345.6, -0.0)] == [
        "0.123 us", "12.3 us", "12,346 us", "0 us",
    ]  # fmt: skip
    assert Row("", 0.256, "x").shown == "0.256 times"
    assert Row("", 0.0512, "%").shown == "0.0512%"


def test_programs_have_a_line_for_each_guard_with_the_spread_of_each_figure() -> None:
    """What is missing stays empty; a cost below nothing is nothing."""
    rows = [
        Row("gan: batch", 1500.0, "us"),
        Row("gan: watch, start-up", 200.0, "ms", 300.0),
        Row("gan: watch, start-up, spread", 10.0, "ms"),
        Row("gan: watch, steady", -3.0, "us"),
        Row("gan: least, steady", 7.0, "us"),
    ]
    assert programs_table(rows)[2:] == [
        "| gan | 1.5 ms | watch | 200 ms ± 10 ms |  | 0 us |  |",
        "| gan | 1.5 ms | memguard run |  |  |  |  |",
        "| gan | 1.5 ms | the least hooks that record |  |  | 7 us |  |",
    ]

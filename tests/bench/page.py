"""The tables of costs in README.md and docs/cost.md, made from what a run kept: ``python -m tests.bench.page``.

What the README claims is one row of `CLAIMS` each; ``python -m tests.bench --check`` measures these again and compares.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

from tests.bench.rows import Row

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "costs.json"


class _Figures(TypedDict):
    """The figures of one environment; None for a subject that failed."""

    where: str
    versions: str
    subjects: dict[str, list[Row] | None]


class Table(_Figures, total=False):
    """The same, with what not every one has."""

    dates: dict[str, str]
    """Of subjects that were measured on another day than the whole run, the day."""


class Results(TypedDict):
    """One run of the benchmarks; the first table is of this machine, a second one of the null GPU."""

    date: str
    machine: str
    quick: bool
    tables: list[Table]


class Claim(NamedTuple):
    """One line of the README's table."""

    text: str
    subject: str
    label: str
    per: str | None = None
    """The row that tells how fast this machine is; None for figures that depend on no machine."""
    floor: float = 0.0
    """What is too little to compare, in the figure's own unit (or as a part of `per`)."""


_LIGHTNING, _PLAIN = "Trainer, a batch without callback", "plain loop, a batch without memguard"
CLAIMS = (
    Claim("a script pays once, from the import to its end", "programs", "classifier: watch, start-up",
          "classifier: batch", 0.2),
    Claim("added to each of its first 1,000 batches, in the mean", "programs", "classifier: watch, first thousand",
          "classifier: batch", 0.2),
    Claim("a training step of 30 ms takes longer by", "long_step", "a step of 30 ms, defaults: share", floor=0.03),
    Claim("the same, if leak checks run on every batch", "long_step",
          "a step of 30 ms, all probes on every batch: share", floor=0.03),
    Claim("added to a batch in a Lightning Trainer", "lightning_loop", "Trainer with MemGuard",
          _LIGHTNING, 0.05),
    Claim("added to a batch of a plain loop", "plain_loop",
          "watch, defaults (probes sampled after 64 batches)", _PLAIN, 0.05),
    Claim("TensorBoard curves of every batch, compared to Lightning's DeviceStatsMonitor", "lightning_loop",
          "MemGuard's cost over DeviceStatsMonitor's, a point each batch", floor=0.02),
    Claim("a million batches: resident memory grows by", "million", "1,000,000 batches, resident memory grew by",
          floor=5.0),
)  # fmt: skip
_HEADINGS = {"on this machine": "CPU", "on the null GPU": "CUDA, no GPU"}


def load(text: str) -> Results:
    """The results of a run, from JSON."""
    results: Results = json.loads(text)
    for table in results["tables"]:
        for name, rows in table["subjects"].items():
            table["subjects"][name] = None if rows is None else [Row(*row) for row in rows]
    return results


def merged(kept: Results, fresh: Results) -> Results:
    """The results of a whole run, with some subjects measured anew: they have a date of their own."""
    tables = {table["where"]: table for table in kept["tables"]}
    for table in fresh["tables"]:
        known = tables.setdefault(table["where"], table)
        known["subjects"] |= table["subjects"]
        known["versions"] = table["versions"]
        known["dates"] = known.get("dates", {}) | dict.fromkeys(table["subjects"], fresh["date"])
    quick = kept["quick"] or fresh["quick"]
    return {"date": kept["date"], "machine": fresh["machine"], "quick": quick, "tables": list(tables.values())}


def find(table: Table, subject: str, label: str | None) -> Row | None:
    """One figure, if it was measured there."""
    return next((row for row in table["subjects"].get(subject) or () if row.label == label), None)


def broken(fresh: Results, slack: float, published: Results | None = None) -> list[str]:
    """The claims that a fresh run does not confirm, in words.

    A cost in microseconds is compared as a part of the bare batch of the same run, so a slower machine breaks none.
    """
    published = load(RESULTS.read_text(encoding="utf-8")) if published is None else published
    return [line for claim in CLAIMS for line in _broken(claim, fresh, published, slack)]


def _broken(claim: Claim, fresh: Results, published: Results, slack: float) -> Iterator[str]:
    for table in fresh["tables"]:
        then = next((old for old in published["tables"] if old["where"] == table["where"]), None)
        now, before = _figure(claim, table), _figure(claim, then) if then is not None else None
        if now is not None and before is not None and now > slack * max(before, claim.floor):
            of = f" of {claim.per}" if claim.per else ""
            yield f"{claim.text} ({table['where']}): {now:.3g}{of}, published as {before:.3g}"


def _figure(claim: Claim, table: Table) -> float | None:
    row = find(table, claim.subject, claim.label)
    if row is None or claim.per is None:
        return None if row is None else row.value
    base = find(table, claim.subject, claim.per)
    return None if base is None else row.value / base.value


def readme_table(results: Results) -> str:
    """What the README claims."""
    tables = results["tables"]
    note = "" if not results["quick"] else " (few repeats: rough)"
    versions = "; ".join(f"{_HEADINGS[table['where']]}: {table['versions']}" for table in tables)
    measured = f"Measured with `make bench` on {results['date']}{note}: {results['machine']}; {versions}."
    lines = [
        *textwrap.wrap(measured, 168),
        "",
        "| | " + " | ".join(_HEADINGS[table["where"]] for table in tables) + " |",
        "|---" * (len(tables) + 1) + "|",
    ]
    for claim in CLAIMS:
        rows = [find(table, claim.subject, claim.label) for table in tables]
        if any(rows):
            lines.append(f"| {claim.text} | " + " | ".join(_compared(row) if row else "" for row in rows) + " |")
    return "\n".join(lines)


def whole_table(results: Results) -> str:
    """Every figure, by environment and subject."""
    lines = [f"{results['date']}: {results['machine']}{' (few repeats: rough)' if results['quick'] else ''}."]
    for table in results["tables"]:
        lines += ["", f"### {table['where'].capitalize()}", "", f"{table['versions']}."]
        for name, rows in table["subjects"].items():
            date = table.get("dates", {}).get(name, results["date"])
            title = f"`{name}`{'' if date == results['date'] else f', {date}'}"
            if name == "programs":
                lines += ["", title, "", *programs_table(rows or ())]
                continue
            lines += ["", title, "", "| | | aim: at most |", "|---|---|---|"]
            aims = ["" if row.at_most is None else _cell(row._replace(value=row.at_most)) for row in rows or ()]
            lines += [f"| {row.label} | {_cell(row)} | {aim} |" for row, aim in zip(rows or (), aims, strict=True)]
    return "\n".join(lines)


_GUARDS = {"watch": "watch", "run": "memguard run"}
_FIGURES = {"start-up": "start-up", "first thousand": "first 1,000", "steady": "steady", "10 s": "10 s take longer by"}


def programs_table(rows: Iterable[Row]) -> list[str]:
    """The figures of `tests.bench.programs`, a line for each training and guard, each with its spread."""
    known = {row.label: row for row in rows}
    head = ["training", "a batch without", "guard", *_FIGURES.values()]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for label, bare in known.items():
        name, _, figure = label.rpartition(": ")
        if figure != "batch":
            continue
        for variant, guard in _GUARDS.items():
            cells = [_with_spread(known, f"{name}: {variant}, {key}") for key in _FIGURES]
            lines.append("| " + " | ".join([name, _cell(bare), guard, *cells]) + " |")
        if (least := known.get(f"{name}: least, steady")) is not None:
            cells = ["", "", _with_spread(known, least.label), ""]
            lines.append("| " + " | ".join([name, _cell(bare), "the least hooks that record", *cells]) + " |")
    return lines


def _with_spread(known: dict[str, Row], label: str) -> str:
    row, spread = known.get(label), known.get(f"{label}, spread")
    if row is None:
        return ""
    return _cell(row) if spread is None else f"{_cell(row)} ± {_cell(spread)}"


def _cell(row: Row) -> str:
    """A figure as a reader wants it: large times in milliseconds, and less than nothing is nothing."""
    row = row._replace(value=max(row.value, 0.0))
    if row.unit.startswith("us") and row.value >= 100:
        return Row(row.label, row.value / 1000, row.unit.replace("us", "ms")).shown
    return row.shown


def _compared(row: Row) -> str:
    """A ratio of costs as a reader wants it, other figures as they are."""
    if row.unit != "x" or row.value <= 0:
        return _cell(row)
    return f"{1 / row.value:.0f} times cheaper" if row.value < 1 else f"{row.value:.1f} times as much"


def with_table(page: str, name: str, table: str) -> str:
    """A page with the table of that name put between its two marks.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- {name}: python -m tests.bench.page -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no place for a table: {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", page)


def pages(results: Results) -> dict[Path, str]:
    """The two pages as they should be."""
    made = {}
    for path, table in ((ROOT / "README.md", readme_table), (ROOT / "docs" / "cost.md", whole_table)):
        made[path] = with_table(path.read_text(encoding="utf-8"), "costs", table(results))
    return made


if __name__ == "__main__":
    for path, text in pages(load(RESULTS.read_text(encoding="utf-8"))).items():
        path.write_text(text, encoding="utf-8")

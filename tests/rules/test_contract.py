from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from memguard.records.claims import Claim
from memguard.records.facts import KINDS, Place, from_json, to_json
from memguard.records.stats import BatchRecord, Run, SlowStats, Stage
from memguard.rules import ALL_RULES, make_rules
from memguard.rules.explain import explain, explanations, page
from memguard.rules.interface import Rule
from memguard.rules.selection import choose
from tests.rules.evidence import EVIDENCE

CODES = [rule.code for rule in ALL_RULES]


def healthy_records() -> list[BatchRecord]:
    mib = 1024**2
    return [
        BatchRecord(
            batch=i,
            stage=Stage.VALIDATION if i % 50 > 40 else Stage.TRAIN,
            epoch=i // 50,
            index=i % 50,
            optimizer_steps=i,
            time=float(i),
            seconds=0.1,
            allocated_start_bytes=1000 * mib,
            allocated_peak_bytes=(3000 + 37 * (i % 7)) * mib,
            allocated_end_bytes=(1000 + i % 5) * mib,
            reserved_bytes=4000 * mib,
            reserved_peak_bytes=4000 * mib,
            active_peak_bytes=(3010 + 37 * (i % 7)) * mib,
            inactive_split_bytes=100 * mib,
            device_used_bytes=4600 * mib,
            host_rss_bytes=(2000 + i % 3) * mib,
            num_alloc_retries=0,
            num_ooms=0,
            num_device_alloc=0,
            num_device_free=0,
        )
        for i in range(600)
    ]


def run_of() -> Run:
    return Run(
        device="cuda:0", device_total_bytes=24 * 1024**3, limit_bytes=23 * 1024**3, batches_per_epoch={Stage.TRAIN: 50}
    )


def judge(records: list[BatchRecord]) -> list[Claim]:
    rules, run, found = make_rules(), run_of(), []
    for record in records:
        for rule in rules:
            found += list(rule.observe(record, run))
    for rule in rules:
        found += list(rule.finish(run))
    return found


def test_every_rule_of_the_design_is_there_once_and_in_order() -> None:
    """Codes are unique and sorted, names are unique, and none is missing."""
    expected = [f"MG10{i}" for i in range(1, 7)] + ["MG201", "MG202"] + [f"MG3{i:02d}" for i in range(1, 14)]
    expected += [f"MG40{i}" for i in range(1, 6)] + [f"MG50{i}" for i in range(1, 5)]
    expected += [f"MG60{i}" for i in range(1, 4)] + [f"MG70{i}" for i in range(1, 5)]
    assert expected == CODES
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name) for rule in ALL_RULES)


@pytest.mark.parametrize("rule", ALL_RULES, ids=CODES)
def test_every_rule_explains_itself(rule: type[Rule]) -> None:
    """A docstring has a title and the three parts."""
    explanation = explain(rule)
    assert explanation.title.endswith(".") and len(explanation.title) < 100
    assert all(len(text) > 30 for text in explanation.parts.values())


def test_a_healthy_recording_yields_nothing() -> None:
    """No rule finds anything in 600 ordinary batches."""
    assert judge(healthy_records()) == []


@pytest.mark.parametrize("rule", ALL_RULES, ids=CODES)
def test_every_rule_fires_on_its_evidence_and_two_runs_agree(rule: type[Rule]) -> None:
    """Each rule speaks with numbers, advice and its own code, in the same words every time."""
    first, second = EVIDENCE[rule.code](rule()), EVIDENCE[rule.code](rule())
    assert first and first == second
    for finding in first:
        assert (finding.code, finding.name) == (rule.code, rule.name)
        assert re.search(r"\d", finding.message), finding.message
        assert finding.message.endswith(".") and finding.advice.endswith(".")
        assert "None" not in finding.message
        assert "unknown" not in finding.message + finding.advice


def test_rules_are_chosen_by_code_name_or_family() -> None:
    """Rules selects, ignore leaves out, case does not matter."""
    assert [rule.code for rule in choose(ALL_RULES, ["mg101", "eval-graph"])] == ["MG101", "MG201"]
    assert "MG402" not in [rule.code for rule in choose(ALL_RULES, None, ["allocator-thrash"])]
    assert {rule.code[:3] for rule in choose(ALL_RULES, ["MG4"])} == {"MG4"}


def test_an_unknown_rule_is_refused_with_the_valid_ones() -> None:
    """The error names the value and the rules that there are."""
    with pytest.raises(ValueError, match=r"'MG999'.*MG001 validation-guarded.*MG101 retained-graph"):
        make_rules(rules=["MG999"])


def test_facts_survive_a_file() -> None:
    """Every kind of fact comes back from JSON data as it was."""
    place = Place(file="/train.py", line=3, function="main", holder="x", source="x += y")
    examples = {"int": 3, "float": 1.5, "bool": True, "str": "a", "tuple": ("a", "b"), "Place": place}
    for kind in KINDS.values():
        values = {}
        for name, field in kind.__dataclass_fields__.items():
            if name not in ("batch", "stage", "place"):
                values[name] = next(v for text, v in examples.items() if str(field.type).startswith(text))
        fact = kind(batch=1, stage=Stage.TRAIN, place=place, **values)
        assert from_json(to_json(fact)) == fact


def test_an_unknown_fact_is_unsampled_tensors() -> None:
    """A recording of a newer memguard may hold kinds that this one does not know."""
    assert from_json({"fact": "Telepathy", "batch": 1}) is None


def test_the_docs_page_is_up_to_date() -> None:
    """docs/rules.md is what the docstrings say."""
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    assert text == page(explanations(ALL_RULES)), "run: python -m memguard.rules.explain > docs/rules.md"


def test_rules_load_no_torch() -> None:
    """A saved recording is judged without torch."""
    code = "import sys, memguard.rules; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TOGETHER = [rule for rule in ALL_RULES if rule.observe_alike is not Rule.observe_alike]


@pytest.mark.parametrize("rule", TOGETHER, ids=[rule.code for rule in TOGETHER])
@pytest.mark.parametrize("seed", range(5))
def test_records_that_are_alike_are_judged_as_one_by_one(rule: type[Rule], seed: int) -> None:
    """Whatever the lengths of the series: the same findings of the same batches; one of the runs grows to its limit."""
    random = Random(seed)
    series: list[list[BatchRecord]] = []
    level, batch = 2 * 1024**3, 0
    while batch < 4000:
        length = random.choice((1, 1, 2, 5, 40, 130))
        if random.random() < 0.1:
            level += 64 * 1024**2 * (seed % 3 - 1)
        held = level + random.randrange(4) * 1024 + batch * (seed % 4) * 2 * 1024**2
        record = replace(healthy_records()[0], epoch=batch // 900, allocated_end_bytes=held, host_rss_bytes=held)
        alike = [replace(record, batch=batch + i, index=(batch + i) % 900) for i in range(length)]
        series.append(alike)
        batch += length
    found: list[list[Claim]] = []
    for together in (False, True):
        judging, run = rule(), run_of()
        run.slow = SlowStats(host_limit_bytes=16 * 1024**3, host_used_bytes=4 * 1024**3)
        told: list[Claim] = []
        for alike in series:
            first, rest = alike[0], alike[1:]
            told += judging.observe(first, run)
            if rest and together:
                told += judging.observe_alike(rest, run)
            for record in [] if together else rest:
                told += judging.observe(record, run)
        found.append(told + list(judging.finish(run)))
    assert found[0] == found[1]
    assert rule.code == "MG301" or seed != 3 or found[0]

from __future__ import annotations

from pathlib import Path

import pytest

import memguard
from memguard.allowing import allowed


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("MG201", "MG201"),
        ("mg201", "MG201"),
        ("Eval-Graph", "MG201"),
        ("MG2", "MG202"),
        ("validation-guarded", "MG001"),
        ("grad", "grad"),
        ("Grad", "grad"),
    ],
)
def test_a_rule_is_meant_by_what_ignore_takes(name: str, code: str) -> None:
    """Its code, name or family, in any case; "grad" as well."""
    with memguard.allow(name):
        assert allowed(code)
    assert not allowed(code)


def test_blocks_may_lie_within_each_other() -> None:
    """What the outer one allows is allowed until it ends."""
    with memguard.allow("MG201"):
        with memguard.allow("eval-graph", "MG101"):
            assert allowed("MG201") and allowed("MG101")
        assert allowed("MG201") and not allowed("MG101")


@pytest.mark.parametrize("name", ["MG999", "nope", ""])
def test_what_is_no_rule_is_refused_with_the_valid_ones(name: str) -> None:
    """Before the block begins, as ignore= refuses it."""
    with pytest.raises(ValueError, match=rf'memguard.allow: there is no rule {name!r}.*MG201 eval-graph.*"grad"'):
        memguard.allow("MG101", name)


def test_disabled_it_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As watch and wrap do not."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    with memguard.allow("MG999"):
        assert not allowed("MG999")


def test_a_guard_ignores_its_own_acts_by_name_in_any_case(tmp_path: Path) -> None:
    """What ignore= takes is silent, however it is written."""
    import torch

    model = torch.nn.Linear(8, 1)
    ignore = ["Validation-Guarded", "mg201"]
    with memguard.watch(model, device="virtual:1GiB", ignore=ignore, logdir=tmp_path, quiet=True) as guard:
        model.eval()
        for _ in range(4):
            model(torch.ones(1, 8))
    assert guard.findings == []

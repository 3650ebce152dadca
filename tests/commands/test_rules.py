import json

import pytest

from memguard.cli import main
from memguard.rules import ALL_RULES
from memguard.rules.explain import explanations


def test_memguards_own_acts_stand_among_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads a code in a finding finds it in the list, in words and as JSON."""
    assert main(["rules"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert main(["rules", "--json"]) == 0
    as_json = [rule["code"] for rule in json.loads(capsys.readouterr().out)]
    assert listed == as_json == [each.code for each in explanations(ALL_RULES)]
    assert {"MG001", "MG002", "MG101"} <= set(listed)


@pytest.mark.parametrize("text", ["MG001", "validation-guarded", "mg101"])
def test_each_of_them_is_explained(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its code or name, and with the way out."""
    assert main(["explain", text]) == 0
    assert "How to " in capsys.readouterr().out


def test_an_unknown_code_is_answered_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with exit code 2."""
    assert main(["explain", "MG999"]) == 2
    assert "MG001 validation-guarded" in capsys.readouterr().err

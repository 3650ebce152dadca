"""Whether the source limits what it fills, from the syntax tree alone."""

from pathlib import Path

import pytest

from memguard.probes.bounded import is_bounded

CACHES = {
    "if key not in store:\n            store[key] = make(key)": True,
    "hit = store.get(key)\n        if hit is None:\n            store[key] = make(key)": True,
    "try:\n            return store[key]\n        except KeyError:\n            store[key] = make(key)": True,
    "try:\n            return store[key]\n        except OSError:\n            store[key] = make(key)": False,
    "if key not in other:\n            store[key] = make(key)": False,
    "store[key] = make(key)": False,
}


@pytest.mark.parametrize("body", CACHES)
def test_a_cache_that_is_asked_first_is_limited_by_its_keys(body: str, tmp_path: Path) -> None:
    """Under whatever name the function knows it: a decorator's parameter, an attribute, the global itself."""
    file = tmp_path / "case.py"
    text = f"CACHE = {{}}\n\ndef memoized(store):\n    def inner(key):\n        {body}\n    return inner\n"
    file.write_text(text)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "store[key] = " in line)
    assert is_bounded(str(file), line, "CACHE") == CACHES[body]


ONCE = (
    "def main():\n    rows = []\n    for x in data:\n        loss(x).backward()\n        rows.append(x)\n\n\n{call}\n"
)


@pytest.mark.parametrize(
    ("call", "once"),
    [
        ("main()", True),
        ("def run():\n    main()\n\n\nif __name__ == '__main__':\n    run()", True),
        ("for epoch in range(3):\n    main()", False),
        ("def fold():\n    main()\n\n\nfold()\nfold()", False),
        ("", False),
    ],
)
def test_a_list_of_the_function_that_runs_once_and_trains_lasts_as_long_as_the_run(
    call: str, once: bool, tmp_path: Path
) -> None:
    """Where its end is asked not to count; by default a variable ends with its function."""
    path = tmp_path / "script.py"
    path.write_text(ONCE.format(call=call))
    assert is_bounded(str(path), 5, "rows")
    assert is_bounded(str(path), 5, "rows", by_function=False) is not once

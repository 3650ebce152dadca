"""Caches are told from results that pile up by the text that fills them."""

import textwrap
from pathlib import Path

import pytest

from memguard.source.emptied.caches import is_cache


def judged(tmp_path: Path, body: str, holder: str = "cache") -> bool:
    """What the statement marked ``# here`` fills."""
    file = tmp_path / f"train{len(list(tmp_path.iterdir()))}.py"
    text = textwrap.dedent(body)
    file.write_text(text)
    line = next(number for number, part in enumerate(text.splitlines(), 1) if "# here" in part)
    return is_cache(str(file), line, holder)


@pytest.mark.parametrize(
    "body",
    [
        "if key not in cache:\n    cache[key] = make(key)  # here\nreturn cache[key]",
        "if self.fast and key in cache:\n    return cache[key]\nout = make(key)\ncache[key] = out  # here\nreturn out",
        "if key in cache.keys():\n    out = cache[key]\nelse:\n    out = cache[key] = make(key)  # here\nreturn out",
        "out = cache.get(key)\nif out is None:\n    out = make(key)\n    cache[key] = out  # here\nreturn out",
        "if (out := cache.get(key)) is not None:\n    return out\ncache[key] = out = make(key)  # here\nreturn out",
        "if not cache.get(key):\n    cache[key] = make(key)  # here\nreturn cache[key]",
        "try:\n    return cache[key]\nexcept KeyError:\n    cache[key] = out = make(key)  # here\nreturn out",
        "try:\n    return cache[key]\nexcept KeyError:\n    pass\ncache[key] = out = make(key)  # here\nreturn out",
    ],
)
def test_a_dict_that_is_filled_where_a_key_lacks_and_read_back_is_a_cache(tmp_path: Path, body: str) -> None:
    """However it is asked; of an attribute and a global alike."""
    function = "def get(self, key):\n" + textwrap.indent(body, "    ") + "\n"
    assert judged(tmp_path, function)
    assert judged(tmp_path, function.replace("cache", "self.cache"), "Net.cache")


@pytest.mark.parametrize(
    "body",
    [
        "cache[key] = make(key)  # here\nreturn cache[key]",
        "if key in cache:\n    return\ncache[key] = make(key)  # here",
        "if key not in others:\n    cache[key] = make(key)  # here\nreturn cache[key]",
        "if key in cache:\n    cache[key] = make(key)  # here\nreturn cache[key]",
        "old = cache.get(key)\ncache[key] = mix(old, make(key))  # here",
        "if key not in cache:\n    cache[key] = make(key)  # here\nelse:\n    cache[key] = cache[key] + make(key)",
        "if key not in cache:\n    cache[key] = make(key)  # here\nelse:\n    cache[key] += make(key)",
        "if key not in cache:\n    cache[key] = []\ncache[key].append(make(key))  # here\nreturn cache[key]",
        "if len(cache) < 3 or last is None:\n    cache[key] = make(key)  # here\nreturn cache[key]",
    ],
)
def test_banks_sums_logs_and_checks_against_duplicates_are_none(tmp_path: Path, body: str) -> None:
    """They store under keys that are there, or never read back what they store."""
    assert not judged(tmp_path, "def get(key):\n" + textwrap.indent(body, "    ") + "\n")


def test_a_function_that_remembers_its_answers_is_a_cache(tmp_path: Path) -> None:
    """By its own name; a default argument's container on the same line is none."""
    for decorator in ("lru_cache(maxsize=None)", "functools.cache", "lru_cache"):
        body = f"@{decorator}  # here\ndef mask(n):\n    return make(n)\n"
        assert judged(tmp_path, body, "mask") and judged(tmp_path, body, "Net.mask")
        assert not judged(tmp_path, body, "seen")
    assert not judged(tmp_path, "def mask(n, seen={}):  # here\n    seen[n] = make(n)\n", "mask")


def test_what_cannot_be_read_is_no_cache(tmp_path: Path) -> None:
    """No file, no line, no name."""
    assert not is_cache(None, 1, "x") and not is_cache("x.py", None, "x") and not is_cache("x.py", 1, None)
    assert not judged(tmp_path, "def f(:  # here\n", "f")

"""Whether the source limits what it fills, from the syntax tree alone."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.bounds import Bound, Reset, bounds_of, has_limit, is_cache, is_learned_from, reset_of

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
    assert bool(bounds_of(str(file), line, "CACHE")) == CACHES[body]
    assert not bounds_of(str(file), line, "CACHE") & ~Bound.KEYED


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
    """Any other function's variable ends with it."""
    path = tmp_path / "script.py"
    path.write_text(ONCE.format(call=call))
    assert bool(bounds_of(str(path), 5, "rows")) is not once


COUNTED = {
    "if self.count < self.size:\n            self.count += 1\n            self.kept.append(x)": True,
    "if self.size > self.count and x is not None:\n            self.kept.append(x)\n            self.count += 1": True,
    "if self.count < self.size:\n            self.count = self.count + 1\n            self.kept.append(x)": True,
    "if self.count < self.size:\n            self.count = self.size + 1\n            self.kept.append(x)": False,
    "if self.count < self.size:\n            self.kept.append(x)": False,
    "if self.count > self.size:\n            self.count += 1\n            self.kept.append(x)": False,
    "if self.count < self.size:\n            self.count += 1\n        self.kept.append(x)": False,
    "if self.n < 9:\n            loss.backward()\n            self.n += 1\n            self.kept.append(x)": False,
}


@pytest.mark.parametrize("body", COUNTED)
def test_a_pool_that_counts_what_it_keeps_is_limited_by_the_number(body: str, tmp_path: Path) -> None:
    """CycleGAN's pool of images; where the counter is that of the training's steps, it limits nothing."""
    path = tmp_path / "script.py"
    text = f"class Pool:\n    def add(self, x):\n        {body}\n"
    path.write_text(text)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if ".append(" in line)
    assert bool(bounds_of(str(path), line, "Pool.kept")) is COUNTED[body]


OTHERS = {
    "images = next(data)\n        del images": False,
    "images = next(data)\n        images = images[:8]": False,
    "images = self.images\n        del images[:8]": True,
    "self.images = self.images[-8:]": True,
    "images = self.images[-8:]\n        self.images = images": True,
    "del self.images": True,
}


@pytest.mark.parametrize("body", OTHERS)
def test_a_variable_of_an_attributes_name_is_another_one(body: str, tmp_path: Path) -> None:
    """What becomes of the variable itself empties no attribute; what is taken out of it may."""
    path = tmp_path / "script.py"
    put = "class Cache:\n    def put(self, x):\n        self.images.append(x)\n"
    path.write_text(f"{put}\n    def step(self, data):\n        {body}\n")
    assert bool(bounds_of(str(path), 3, "Cache.images")) is OTHERS[body]
    assert (reset_of(str(path), 3, "Cache.images") is Reset.NEVER) is not OTHERS[body]


@pytest.mark.parametrize(
    ("text", "limited"),
    [
        ("self.kept.append(x)\nif len(self.kept) > 8:\n    self.kept.pop(0)", True),
        ("self.kept.append(x)\nself.kept = self.kept[-8:]", True),
        ("self.kept = deque(maxlen=8)", True),
        ("self.kept.append(x)\nif len(self.kept) > 8:\n    report(self.kept)", False),
        ("self.kept.append(x)\nself.other.pop(0)\nself.kept = []", False),
    ],
)
def test_a_container_has_a_limit_where_something_is_taken_out_of_it(text: str, limited: bool, tmp_path: Path) -> None:
    """That its length is asked for, or that it is made anew, is none."""
    file = tmp_path / "case.py"
    file.write_text(text)
    assert has_limit(str(file), "Trainer.kept") is limited
    assert not has_limit(None, "Trainer.kept") and not has_limit(str(file), None)


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


def test_lists_that_a_loop_empties_one_after_the_other_are_emptied(tmp_path: Path) -> None:
    """The loop runs over a tuple of them."""
    path = tmp_path / "case.py"
    text = "class Scores:\n    def add(self, x):\n        self.{0}.append(x)\n\n    def end(self):\n"
    text += "        for rows in (self.scores, self.maps):\n            rows.clear()\n"
    for name in ("maps", "others"):
        path.write_text(text.format(name))
        assert (bounds_of(str(path), 3, f"Scores.{name}") is Bound.REMOVED) is (name == "maps")


LEARNERS = {
    "for move in self.rollout:\n            self.loss(move).backward()": True,
    "loss = self.loss(self.rollout[-1])\n        loss.backward()": True,
    "for x in data:\n            self.loss(x).backward()\n            self.rollout.append(x)": False,
    "for x in data:\n            self.loss(x).backward()\n        print(len(self.rollout), max(self.rollout))": False,
    "for x in data:\n            if x not in self.rollout:\n                self.loss(x).backward()": False,
    "return self.loss(self.rollout)": False,
}


@pytest.mark.parametrize("body", LEARNERS)
def test_what_a_loop_with_a_backward_reads_is_learned_from(body: str, tmp_path: Path) -> None:
    """To fill it in such a loop, or to read it after the loop, is no learning."""
    path = tmp_path / "case.py"
    acts = "class Agent:\n    def act(self, x):\n        self.rollout.append(x)\n\n"
    learns = f"    def learn(self, data):\n        {body}\n"
    place = Place(file=str(path), line=3, function="act", holder="Agent.rollout")
    path.write_text(f"{acts}{learns}        self.rollout.clear()\n")
    assert is_learned_from(place) is LEARNERS[body]
    other = tmp_path / "other.py"
    other.write_text(acts + learns)
    assert not is_learned_from(replace(place, file=str(other))), "nothing empties it"

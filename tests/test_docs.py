"""The documentation is true: its programs run, its commands parse, its links lead somewhere."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.fixed_costs import fixed_costs

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]
PAGES = [page for page in PAGES if "node_modules" not in page.parts]  # what `make axe` installs is not ours
QUICK = {"README", "getting-started", "start-lightning"}
"""Pages whose programs `make test` runs; `make test-long` has all."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced code blocks of a page in some languages."""
    return [code for language, code in _FENCE.findall(page.read_text()) if language in languages]


def prepared() -> dict[str, Any]:
    """What a page's first program may take for granted: a model, an optimizer and data, as a reader has them."""
    import lightning.pytorch as package
    import torch
    from torch import nn

    class Net(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.mse_loss(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pairs = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 1))
    loader = torch.utils.data.DataLoader(pairs, batch_size=4)

    own_x, own_y = torch.randn(32, 8), torch.randn(32, 1)

    def step(x: Any = None, y: Any = None) -> None:
        x, y = (own_x, own_y) if x is None else (x, y)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return {
        "model": model, "optimizer": optimizer, "data": loader, "loader": loader, "criterion": nn.MSELoss(),
        "step": step, "train_one_step": step, "torch": torch, "memguard": __import__("memguard"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [
        page if page.stem in QUICK else pytest.param(page, marks=pytest.mark.long)
        for page in PAGES
        if blocks(page, "python")
    ],
    ids=name_of,
)
@pytest.mark.filterwarnings("ignore")
def test_the_programs_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each page is one program, its blocks in order: what they assert holds, and memguard says what the page shows."""
    import memguard

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_TRAINER_MAX_EPOCHS", "1")
    names = prepared()
    try:
        for number, code in enumerate(blocks(page, "python")):
            file = tmp_path / ("train.py" if number == 0 else f"block_{number}.py")
            file.write_text(code)
            with fixed_costs():  # what a busy machine samples is not what the page shows
                exec(compile(code, str(file), "exec"), names)
    finally:
        with contextlib.suppress(memguard.MemGuardError):
            memguard.unwrap(names["model"])
    said = squeezed(capsys.readouterr().err)
    for message in (code for code in blocks(page, "") if code.startswith("memguard warning MG")):
        assert squeezed(message) in said


def squeezed(text: str) -> str:
    """A text with single spaces: a page breaks its lines where it likes."""
    return " ".join(text.split())


def test_a_page_with_a_wrong_program_would_be_found(tmp_path: Path) -> None:
    """The check itself sees a block's code."""
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nraise LookupError\n```\n\n```\nmemguard frobnicate\n```\n")
    assert blocks(page, "python") == ["raise LookupError\n"]
    assert commands(page) == [["frobnicate"]]


def commands(page: Path) -> list[list[str]]:
    """The arguments of each ``memguard ...`` line in the plain blocks of a page, shown output left out."""
    lines = [line for code in blocks(page, "", "sh", "bash") for line in code.splitlines()]
    return [
        [word for word in shlex.split(line, comments=True)[1:] if not word.startswith("[")]
        for line in lines
        if re.match(r"memguard (?!on |info |warning |critical )[a-z]", line)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_the_commands_of_a_page_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each parses: commands and options are spelt as the command line wants them."""
    from memguard.cli import make_parser

    parser = make_parser()
    for arguments in commands(page):
        try:
            parser.parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{name_of(page)}: memguard {shlex.join(arguments)}\n{capsys.readouterr().err}")


def test_what_the_text_calls_a_command_is_one() -> None:
    """Commands within sentences, behind ``-m``, and make's targets: they exist, with the options that are shown."""
    from memguard.cli import make_parser

    parsers = next(
        action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    seen, wrong = 0, []
    for page in PAGES:
        text = page.read_text()
        shown = [line for code in blocks(page, "", "sh", "bash") for line in code.splitlines()]
        for phrase in (*re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)), *shown):
            phrase = phrase.split("#")[0].split("|")[0]
            called = re.search(r"(?:^|-m |&& )memguard ([a-z]+)( .*)?$", phrase.strip())
            if called and called[1] not in ("on", "info", "warning", "critical"):
                seen += 1
                command = parsers.get(called[1])
                own = (
                    re.split(r"\s[\w./-]+\.py\b|\s-m\s", called[2] or "")[0] if called[1] == "run" else called[2] or ""
                )
                options = re.findall(r"(?<!\S)--[a-z][\w-]*", own)
                if command is None or set(options) - set(command._option_string_actions):
                    wrong.append(f"{name_of(page)}: memguard {called[1]} {options}")
            made = re.match(r"make ([a-z][\w-]*)$", phrase.strip())
            if made and made[1] not in targets:
                wrong.append(f"{name_of(page)}: make {made[1]}")
    assert seen > 100
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """To files that are there and headings that exist."""
    text = _FENCE.sub("", page.read_text())
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_block_of_code_is_in_a_language_that_is_checked() -> None:
    """Python runs (`py`: is type-checked), commands parse, data loads, differences are the rules' examples."""
    used = {language for page in PAGES for language, _ in _FENCE.findall(page.read_text())}
    assert used <= {"", "sh", "python", "py", "yaml", "toml", "json", "diff"}
    examples = (ROOT / "memguard" / "rules" / "examples.md").read_text()
    assert all(f"```diff\n{code}```" in examples for page in PAGES for code in blocks(page, "diff"))


@pytest.mark.long
def test_programs_that_would_need_a_service_are_of_the_right_types(tmp_path: Path) -> None:
    """Blocks of `py` need a port or a store, so they do not run here; mypy checks their names, options and values."""
    mypy = pytest.importorskip("mypy.api")
    given = (
        "import torch, memguard\nmodel: torch.nn.Module\noptimizer: torch.optim.Optimizer\nloader: list[torch.Tensor]\n"
    )
    program = tmp_path / "program.py"
    program.write_text(given + "\n".join(code for page in PAGES for code in blocks(page, "py")) + "\n")
    arguments = ["--follow-imports=silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path)]
    said, _, code = mypy.run([*arguments, str(program)])
    assert code == 0, said
    program.write_text(given + 'memguard.wrap(model, exprt="otlp")\n')
    assert mypy.run([*arguments, str(program)])[2] == 1


def test_configuration_on_the_pages_loads() -> None:
    """Each block of YAML, TOML or JSON parses, and what it runs of memguard is a command."""
    import yaml

    loads: dict[str, Any] = {"yaml": yaml.safe_load, "json": json.loads}
    if sys.version_info >= (3, 11):
        import tomllib

        loads["toml"] = tomllib.loads
    parsed = [loads[kind](code) for kind in loads for page in PAGES for code in blocks(page, kind)]
    assert parsed and all(isinstance(each, dict) for each in parsed)


def test_the_front_page_is_short() -> None:
    """It is read whole: under 150 lines, with two pictures that are there."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 2 and all((ROOT / picture).is_file() for picture in pictures)


def test_the_versions_on_the_page_are_those_that_are_tested() -> None:
    """docs/compatibility.md has the pins of constraints.txt and tests/oldest.txt."""
    pins = [
        dict(line.strip().split("==") for line in path.read_text().splitlines() if "==" in line)
        for path in (ROOT / "tests" / "oldest.txt", ROOT / "constraints.txt")
    ]
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| ([\d.]+|not tried) \| ([\d.]+) \|$", page_text("compatibility"), re.MULTILINE
    )
    assert {"torch", "lightning", "transformers"} <= {name for name, _, _ in rows}
    assert rows == [(name, pins[0].get(name, "not tried"), pins[1][name]) for name, _, _ in rows]


def page_text(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def test_every_page_is_in_the_index() -> None:
    """docs/README.md leads to all others."""
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"({name})" not in index} == set()

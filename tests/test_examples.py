import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from memguard.cli import main
from memguard.recording.reader import Recording, find_recordings
from memguard.records.findings import Finding
from tests.browser.chromium import needs_chromium

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ARGUMENTS = {
    "plain_charlm": ["--steps", "60", "--device", "virtual:256MiB"],
    "lightning_digits": ["--epochs", "1", "--device", "virtual:256MiB"],
    "huggingface_tiny": ["--steps", "24", "--device", "virtual:256MiB"],
    "grpo_phases": ["--steps", "12", "--device", "virtual:256MiB"],
    "fabric_forecaster": ["--steps", "50", "--device", "virtual:256MiB"],
    "accelerate_retrieval": ["--steps", "50", "--device", "virtual:256MiB"],
}
PLANTED = {
    "huggingface_tiny": ("MG101", "self.history.append(loss)"),
    "fabric_forecaster": ("MG101", "plot.append(predicted[0])"),
    "accelerate_retrieval": ("MG301", "index.append(directions.detach())"),
}
"""What --leak plants: the rule, and the line that it names."""


def findings_of(logdir: Path) -> list[Finding]:
    return [finding for path in find_recordings(logdir) for finding in Recording.open(path).findings]


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_every_example_is_tried() -> None:
    """A new example needs arguments here."""
    assert {path.stem for path in EXAMPLES} == set(ARGUMENTS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    """Under 120 lines, so that it is read."""
    assert len(path.read_text().splitlines()) < 120


@pytest.mark.long
@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.filterwarnings("ignore")
def test_an_example_runs_and_ends_with_a_summary(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its docstring says to run it, with few steps; without its planted leak there is nothing to tell."""
    script = str(ROOT / "examples" / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, *ARGUMENTS[name], "--logdir", str(tmp_path / "log")])
    runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr()
    assert "validation" in said.out
    assert "memguard on virtual:256MiB" in said.err and "Peak: " in said.err
    recordings = [Recording.open(path) for path in find_recordings(tmp_path / "log")]
    assert all(len(recording) > 40 for recording in recordings)
    filled = [contents for recording in recordings for contents in recording.of_kind("contents")]
    assert filled, "what filled the peak is not recorded"
    for contents in filled:
        whole = sum(row[6] for row in contents["rows"])
        assert whole == pytest.approx(contents["allocated_peak_bytes"], rel=0.02)
    assert name not in PLANTED or findings_of(tmp_path / "log") == []


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_an_example_finds_its_planted_leak(name: str, tmp_path: Path) -> None:
    """The line of the example itself, and nothing else."""
    script = ROOT / "examples" / f"{name}.py"
    done = python(str(script), *ARGUMENTS[name], "--leak", "--logdir", str(tmp_path / "log"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = script.read_text().splitlines()
    found = {(one.code, one.file, lines[(one.line or 0) - 1].strip()) for one in findings_of(tmp_path / "log")}
    assert found == {(PLANTED[name][0], str(script), PLANTED[name][1])}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The demo, run once: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("run")
    return folder / "demo", python("-m", "memguard", "demo", "--logdir", str(folder / "demo"), cwd=folder)


def test_the_demo_shows_its_planted_faults_and_explains_the_end(
    demo: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Three faults named by line, the out-of-memory error explained, where to look next; exit code 0."""
    folder, done = demo
    assert done.returncode == 0, done.stderr
    lines = (folder / "demo_training.py").read_text().splitlines()
    planted = {
        "MG101": "losses.append(loss)",
        "MG201": "total += loss_of(model(inputs), targets).item()",
        "MG301": "samples.append(scores.detach())",
    }
    assert main(["report", "--json", str(folder)]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {finding["code"]: finding for finding in report["findings"]}
    assert {code: lines[found[code]["line"] - 1].strip() for code in planted} == planted
    assert report["oom"]["cause"]
    assert "Why: A leak" in " ".join(done.stderr.split()) and "`samples`" in done.stderr
    assert f"tensorboard --logdir {folder}" in done.stderr
    assert "step 40: training loss" in done.stdout


def without_numbers(text: str) -> list[str]:
    """The words of a text; figures, with their units, differ from run to run."""
    return re.sub(r"\d[\d.,]* ?(bytes|[KMGT]iB|ms|us|s|%)?(?=\W|$)|#+", "#", text.replace("\xa0", " ")).split()


def test_the_picture_of_the_terminal_shows_what_the_demo_prints(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The README's first picture: each of its paragraphs is one that a new run prints, word by word."""
    drawn: dict[str, list[str]] = {}
    for text in ElementTree.parse(PICTURES / "demo.svg").getroot().iter("{http://www.w3.org/2000/svg}text"):
        drawn.setdefault(text.attrib["clip-path"], []).append(text.text or "")
    lines = ["".join(parts) for parts in drawn.values()]
    assert lines[0].strip() == "$\xa0memguard\xa0demo"
    printed = " ".join(without_numbers(demo[1].stderr))
    paragraphs: list[str] = []
    for line in lines[1:]:
        if re.match(r"(\xa0\xa0)?[\w.]", line):
            paragraphs.append("")
        paragraphs[-1] += f"{line} "
    assert len(paragraphs) > 10
    for paragraph in paragraphs:
        if "report.md" not in paragraph:  # whose folder is the run's own
            assert " ".join(without_numbers(paragraph.replace("...", ""))) in printed, paragraph


@needs_chromium
@pytest.mark.browser
def test_the_picture_of_the_memory_tab_shows_what_the_tab_shows(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The README's second picture: its words are on the tab of a new run, in its recording, or in the tab's scripts."""
    from tools.pictures import memory_tab

    _, words = memory_tab(demo[0])
    static = ROOT / "memguard" / "tensorboard_plugin" / "static"
    scripts = " ".join(path.read_text() for path in static.glob("*.js"))  # of a part that this run has no numbers for
    recorded = find_recordings(demo[0])[0].with_suffix(".jsonl").read_text()  # of a batch that the tab does not show
    shown, drawn = without_numbers(words), without_numbers((PICTURES / "memory-tab.txt").read_text())
    assert len(shown) > 100
    missing = [word for word in drawn if word not in shown and word not in scripts]
    assert [word for word in missing if word.split("#")[0] not in recorded] == []


def test_a_demo_on_too_small_a_device_does_not_say_that_it_went_as_planned(tmp_path: Path) -> None:
    """Nothing was allocated, so nothing holds memory, and what was asked for is a segment."""
    done = python("-m", "memguard", "demo", "--device", "virtual:1MiB", "--logdir", str(tmp_path), cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 0
    assert "virtual:1MiB is too small for it" in said and "as planned" not in said
    assert "0 bytes allocated" in said and "Held by" not in said and "Why: Size: a segment of 2.00 MiB" in said

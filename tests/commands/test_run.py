import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.recording.reader import Recording, find_recordings

PLAIN = """
import sys, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
teacher = nn.Linear(8, 1)
loss_function = nn.MSELoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    x = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = loss_function(net(x), teacher(x).detach())
    loss.backward()
    optimizer.step()
net.eval()
outputs = [net(torch.ones(2, 8)) for _ in range(6)]
print(loss.item(), outputs[0].requires_grad, sys.argv[1:], __name__)
"""

GRAD_CAM = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
kept = {}
net[1].register_forward_hook(lambda module, inputs, output: (output.retain_grad(), kept.update(a=output))[0])
for _ in range(3):
    score = net(torch.randn(1, 1, 8, 8))[0].max()
    score.backward()
    print((kept["a"].grad.mean((2, 3)) @ torch.ones(4)).item())
"""

ATTACK = """
import torch
from torch import nn
from torch.nn import functional
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
x, y = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
delta = torch.zeros_like(x, requires_grad=True)
for _ in range(5):
    functional.cross_entropy(net(x + delta), y).backward()
    delta.data = (delta + 0.01 * delta.grad.sign()).clamp(-0.1, 0.1)
    delta.grad = None
print(delta.sum().item())
"""

TEST_TIME_TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)).eval()
optimizer = torch.optim.SGD(net[1].parameters(), lr=0.1)
for _ in range(4):
    scores = net(torch.randn(8, 8)).softmax(1)
    loss = -(scores * scores.log()).sum(1).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
"""

META_LEARNER = """
import torch
from torch import nn
from torch.nn import functional
torch.manual_seed(0)
class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.randn(3, 8))])
    def forward(self, x, vars=None):
        return functional.linear(x, (vars or self.vars)[0])
    def parameters(self):
        return self.vars  # a list, not an iterator
net = Learner()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
    fast = [p - g for p, g in zip(net.vars, torch.autograd.grad(functional.cross_entropy(net(x), y), list(net.vars)))]
    loss = functional.cross_entropy(net(x, fast), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
"""


FOLDS = """
import torch
for fold in range(6):
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(30):
        optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
    model.eval()
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(4, 8))
"""

BY_HAND = """
import torch
def fit(seed):
    model = torch.nn.Linear(8, 3)
    for _ in range(10):
        model.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
    with torch.no_grad():
        model.eval()(torch.randn(4, 8))
for seed in range(30):
    fit(seed)
"""

COPIES = """
import copy, torch
base = torch.nn.Linear(8, 3)
def fit(model, steps):
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
fit(base, 70)
for user in range(100):
    fit(copy.deepcopy(base), 20)
"""


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "ignore", **environment}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def run(
    script: Path, *arguments: str, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    logdir = ("--logdir", str(script.parent / "log"))
    program = (*logdir, *options, script.name, *arguments)
    return python("-m", "memguard", "run", *program, cwd=script.parent, **environment)


@pytest.mark.parametrize(
    "code",
    [PLAIN, GRAD_CAM, ATTACK, TEST_TIME_TRAINING, META_LEARNER],
    ids=["plain", "grad-cam", "attack", "test-time training", "parameters of its own"],
)
def test_output_and_exit_code_are_the_scripts_own(code: str, tmp_path: Path) -> None:
    """Stdout byte for byte, results included; what memguard says goes to stderr."""
    script = tmp_path / "train.py"
    script.write_text(code)
    alone, guarded = python(script.name, "--lr", "1", cwd=tmp_path), run(script, "--lr", "1")
    assert alone.returncode == 0
    assert (guarded.stdout, guarded.returncode) == (alone.stdout, alone.returncode)
    assert "memguard" in guarded.stderr


def test_root_models_and_evaluation_are_found(tmp_path: Path) -> None:
    """Training and evaluation batches are told apart; a teacher does not count as a batch."""
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    done = run(script, options=("--json", str(tmp_path / "report.json")))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["batches"] == {"train": 20, "validation": 6}
    assert report["version"] == 1 and report["device"] == "cpu"
    assert len(Recording.open(find_recordings(tmp_path / "log")[0])) == 26


def test_a_script_without_a_trainer_has_no_loggers_to_tell(tmp_path: Path) -> None:
    """--loggers means those of a Trainer; a plain loop is guarded all the same."""
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    done = run(script, options=("--loggers",))
    assert done.returncode == 0 and "26 batches" in done.stderr and "failed" not in done.stderr


def test_models_that_come_late_are_found(tmp_path: Path) -> None:
    """Each fold has its own model and optimizer; at most its first batch is missed, and that of its evaluation not."""
    script = tmp_path / "train.py"
    script.write_text(FOLDS)
    done = run(script, options=("--json", str(tmp_path / "report.json")))
    assert done.returncode == 0, done.stderr
    batches = json.loads((tmp_path / "report.json").read_text())["batches"]
    assert batches["validation"] == 6 * 10
    assert 6 * 29 <= batches["train"] <= 6 * 30


def test_models_that_no_optimizer_trains_are_found_late_as_well(tmp_path: Path) -> None:
    """One for each patch, its weights changed by hand: a backward without a batch is a reason to look again."""
    script = tmp_path / "train.py"
    script.write_text(BY_HAND)
    done = run(script, options=("--json", str(tmp_path / "report.json")))
    assert done.returncode == 0, done.stderr
    batches = json.loads((tmp_path / "report.json").read_text())["batches"]
    assert 30 * 9 <= batches["train"] <= 30 * 10
    assert batches["validation"] >= 25


def test_copies_of_a_model_that_lives_on_are_found_as_well(tmp_path: Path) -> None:
    """Its last batch stays open; many backwards in it, or a copy that died, are a reason to look again."""
    script = tmp_path / "train.py"
    script.write_text(COPIES)
    done = run(script, options=("--json", str(tmp_path / "report.json")))
    assert done.returncode == 0, done.stderr
    assert 70 + 95 * 19 <= json.loads((tmp_path / "report.json").read_text())["batches"]["train"] <= 70 + 100 * 20


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import sys; sys.exit('no luck')", 1),
        ("raise ValueError('the script')", 1),
        ("", 0),
    ],
)
def test_the_exit_code_is_the_scripts(ending: str, code: int, tmp_path: Path) -> None:
    """However the script ends, its caller sees what it would have seen."""
    script = tmp_path / "train.py"
    script.write_text(ending + "\n")
    alone, guarded = python(script.name, cwd=tmp_path), run(script)
    assert guarded.returncode == alone.returncode == code
    assert (
        guarded.stderr.startswith(alone.stderr.replace(f'"{script}"', f'"{script.name}"'))
        or code != 1
        or (alone.stderr.strip().splitlines()[-1] in guarded.stderr)
    )


def test_a_traceback_shows_the_script_and_nothing_of_ours(tmp_path: Path) -> None:
    """The frames are those of plain Python."""
    script = tmp_path / "train.py"
    script.write_text("def step():\n    raise ValueError('in the step')\nstep()\n")
    done = run(script)
    assert "in the step" in done.stderr
    assert "script.py" not in done.stderr and "runpy" not in done.stderr


THREAD = """
import sys, threading, torch
from torch import nn
def train():
    net, own = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), sys.argv[1:] == ["own"]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if own:
        import memguard
        memguard.wrap(net, quiet=True)
    for _ in range(5):
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    if own:
        memguard.unwrap()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), "virtual:8MiB"])
def test_a_training_in_a_thread_of_the_script_is_recorded(device: str, tmp_path: Path) -> None:
    """The program did call a model; a guard that it opens there records it."""
    script = tmp_path / "train.py"
    script.write_text(THREAD)
    done = run(script, options=("--device", device))
    assert done.returncode == 0, done.stderr
    assert "4 batches, nothing to worry about." in done.stderr  # the first one's backward showed where training runs
    assert "another thread" not in done.stderr
    done = run(script, "own", options=("--device", device))
    assert "5 batches, nothing to worry about." in done.stderr and "another thread" not in done.stderr


def test_a_module_runs_with_m(tmp_path: Path) -> None:
    """As python -m does."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = python("-m", "memguard", "run", "-m", "package.train", "--x", cwd=tmp_path)
    assert done.stdout == "__main__ ['--x']\n", done.stderr


def test_a_lightning_script_gets_the_callback(tmp_path: Path) -> None:
    """MEMGUARD=1 is set for the script, and its options arrive."""
    script = tmp_path / "train.py"
    script.write_text(
        "import lightning as L, sys\n"
        "from tests.integrations.test_lightning import trainer, classifier, loader\n"
        "from pathlib import Path\n"
        "import importlib\n"
        "package = importlib.import_module('lightning.pytorch')\n"
        "t = trainer(package, Path('.'))\n"
        "t.fit(classifier(package), loader(), loader(8))\n"
    )
    done = run(script, options=("--json", "report.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["batches"] == {"sanity": 2, "train": 12, "validation": 4}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("missing.py",), "missing.py"),
        (("--device", "gpu", "train.py"), "virtual:SIZE"),
        (("--device", "xpu", "train.py"), "is not in this build of PyTorch"),
        (("--validation", "on", "train.py"), "guard, warn, off"),
        (("--rules", "MG999", "train.py"), "MG101"),
        (("--empty-cache", "0", "train.py"), "at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    """The value and the valid ones, no traceback."""
    (tmp_path / "train.py").write_text("print('never')")
    done = python("-m", "memguard", "run", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert word in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_memguard_disable_runs_the_script_alone(tmp_path: Path) -> None:
    """Nothing is written, nothing said."""
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    done = python("-m", "memguard", "run", script.name, cwd=tmp_path, MEMGUARD_DISABLE="1")
    assert done.returncode == 0 and not (tmp_path / "memguard-runs").exists()
    assert done.stderr == ""


OWN_GUARD = """
import torch, memguard
from torch import nn
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with memguard.watch(net, optimizer, logdir="own", quiet=True) as guard:
    for _ in range(5):
        net(torch.randn(4, 8)).mean().backward()
        optimizer.step()
print(len(guard.records))
"""


OWN_GUARD_LATER = """
import torch, memguard
from torch import nn
def epoch(batches):
    for _ in range(batches):
        net(torch.randn(4, 8)).mean().backward()
        optimizer.step()
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
epoch(10)
with memguard.watch(net, optimizer, logdir="own", quiet=True) as guard:
    epoch(20)
print(len(guard.records))
epoch(30)
"""


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), "virtual:1GiB"])
def test_a_guard_of_the_scripts_own_takes_over(device: str, tmp_path: Path) -> None:
    """While it is there, the models that were found before are its own; afterwards they are found again."""
    script = tmp_path / "train.py"
    script.write_text(OWN_GUARD_LATER)
    done = run(script, options=("--device", device, "--json", "report.json"))
    assert done.returncode == 0 and done.stdout.strip() == "20"
    found = [Recording.open(path).records() for path in find_recordings(tmp_path / "log")]
    trained = sum(record.stage.value == "train" for records in found for record in records)
    assert 40 <= trained <= 42, "one batch may be in both"


def test_models_made_anew_are_found_after_a_guard_of_the_scripts_own(tmp_path: Path) -> None:
    """Their backwards are heard again, though the first batches came before that guard."""
    script = tmp_path / "train.py"
    script.write_text(OWN_GUARD_LATER.replace("epoch(10)", "epoch(70)").replace("epoch(30)", BY_HAND))
    done = run(script, options=("--device", "cpu", "--json", "report.json"))
    assert done.returncode == 0, done.stderr
    found = [Recording.open(path).records() for path in find_recordings(tmp_path / "log")]
    assert sum(record.stage.value == "train" for records in found for record in records) > 70 + 250


TEACHER_OF_A_GUARDED_MODEL = """
import memguard, torch
from torch import nn
class Student(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher, self.net = teacher, nn.Linear(64, 8)
    def forward(self, x):
        return (self.net(x) - self.teacher(x).detach()).square().mean()
teacher = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8))
first = torch.optim.SGD(teacher.parameters(), lr=0.1)
for _ in range(10):
    teacher(torch.randn(256, 64)).square().mean().backward()
    first.step()
model = Student(teacher.eval())
second = torch.optim.SGD(model.net.parameters(), lr=0.1)
with memguard.watch(model, second, logdir="own", quiet=True):
    for _ in range(20):
        model(torch.randn(256, 64)).backward()
        second.step()
"""


def test_what_a_guard_of_the_scripts_own_watches_is_not_judged_besides(tmp_path: Path) -> None:
    """A teacher that was trained before is a frozen model there, and no evaluation of the run around it."""
    script = tmp_path / "train.py"
    script.write_text(TEACHER_OF_A_GUARDED_MODEL)
    done = run(script, options=("--device", "virtual:1GiB", "--json", "report.json"))
    assert done.returncode == 0, done.stderr
    codes = {finding["code"] for finding in json.loads((tmp_path / "report.json").read_text())["findings"]}
    assert "MG201" not in codes


@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_a_guard_of_the_scripts_own_is_the_only_one(device: str, tmp_path: Path) -> None:
    """Nothing is recorded twice; what its own guard saw is in the report."""
    script = tmp_path / "train.py"
    script.write_text(OWN_GUARD)
    done = run(script, options=("--device", device, "--json", "report.json"))
    assert done.returncode == 0 and done.stdout.strip() == "5"
    assert json.loads((tmp_path / "report.json").read_text())["batches"] == {"train": 5}


def test_a_script_sees_itself_as_in_plain_python(tmp_path: Path) -> None:
    """Its path holds after it went to another folder; warnings and tracebacks name it as Python does."""
    script = tmp_path / "train.py"
    script.write_text(
        "import inspect, os, pickle, sys, torch, warnings\n"
        "class Config: pass\n"
        "print({name: type(value).__name__ for name, value in sorted(globals().items()) if name.startswith('__')})\n"
        "print(__file__, sys.argv, sys.path[0], __loader__.path, sys.modules['__main__'].__file__)\n"
        "print(type(pickle.loads(pickle.dumps(Config()))) is Config, inspect.getfile(inspect.currentframe()))\n"
        "os.chdir('/')\n"
        "print(inspect.getsource(Config), os.path.isfile(__file__))\n"
        "torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()\n"
        "warnings.warn('hello')\n"
        "raise ValueError('x')\n"
    )
    alone = python(script.name, "1", cwd=tmp_path, PYTHONWARNINGS="default")
    guarded = run(script, "1", PYTHONWARNINGS="default")
    assert (guarded.stdout, guarded.returncode) == (alone.stdout, alone.returncode)
    told = alone.stderr.splitlines()
    assert "\n".join(told[-4:]) in guarded.stderr
    assert next(line for line in told if "hello" in line) in guarded.stderr


def test_a_script_that_does_not_compile_is_told_as_in_plain_python(tmp_path: Path) -> None:
    """The line, without a frame of memguard's."""
    script = tmp_path / "train.py"
    script.write_text("def f(:\n    pass\n")
    alone, guarded = python(script.name, cwd=tmp_path), run(script)
    assert (guarded.stdout, guarded.returncode) == (alone.stdout, alone.returncode)
    assert alone.stderr.strip() in guarded.stderr and "Traceback" not in guarded.stderr

"""What every test relies on: no hook, thread or patch of memguard's survives a test."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores: more threads only wait for each other

collect_ignore_glob = ["corpus/*/*"]
"""Its programs are run, not collected, whatever their names are."""


def pytest_collection_finish() -> None:
    """Sets aside what the tests have imported, half a million objects: memguard and the collector pass it over."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _what_was_is_set_aside() -> None:
    """The same for what the modules before have imported and left: nobody looks through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _without_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves the modules of other tests, hundreds and large ones, out of what memguard takes for the program."""
    values = vars(request.module).values()
    used = {getattr(value, "__module__", getattr(value, "__name__", None)) for value in values}
    with pytest.MonkeyPatch.context() as patch:
        for name in list(sys.modules):
            is_test = name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")
            if is_test and name != request.module.__name__ and name not in used:
                patch.delitem(sys.modules, name)
        yield


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What hangs on circles alone stays for as long as the test runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that leaves a global hook, a patched method, a gc callback, a thread or an open guard."""
    for variable in ("MEMGUARD", "MEMGUARD_DISABLE", "MEMGUARD_LOGDIR", "MEMGUARD_OPTIONS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    before = _traces()
    yield
    _let_threads_end()
    after = _traces()
    clean = {"module hooks": 0, "optimizer hooks": 0, "grad mode": True, "function modes": 0, "dispatch modes": 0}
    expected = {**clean, **before} if "grad mode" in after else before  # torch may have been imported by the test
    expected.setdefault("add_param_group", after.get("add_param_group"))
    assert after == {name: expected[name] for name in after}


def _let_threads_end() -> None:
    """Waits for threads that were told to stop and did not come to it yet, as on a busy machine."""
    for thread in threading.enumerate():
        stopped = getattr(getattr(getattr(thread, "stop", None), "__self__", None), "_stopped", None)
        if thread.name.startswith("memguard") and stopped is not None and stopped.is_set():
            thread.join(60)


def _traces() -> dict[str, object]:
    traces: dict[str, object] = {
        "gc callbacks": [
            callback for callback in gc.callbacks if "memguard" in str(getattr(callback, "__module__", ""))
        ],
        "start of processes": BaseProcess.start,
        "threads": [thread.name for thread in threading.enumerate() if thread.name.startswith("memguard")],
    }
    if "torch" in sys.modules:
        import torch
        from torch.optim import Optimizer

        from tests.hooks import hooks_everywhere

        optimizer = sys.modules["torch.optim.optimizer"]
        traces["module hooks"] = len(hooks_everywhere())
        traces["optimizer hooks"] = len(optimizer._global_optimizer_pre_hooks) + len(
            optimizer._global_optimizer_post_hooks
        )
        traces["add_param_group"] = Optimizer.add_param_group
        traces["grad mode"] = torch.is_grad_enabled()
        traces["function modes"] = torch._C._len_torch_function_stack()
        traces["dispatch modes"] = torch._C._len_torch_dispatch_stack()
    session = sys.modules.get("memguard.integrations.session")
    traces["sessions"] = list(getattr(session, "_open", ()))
    traces["listeners"] = list(getattr(session, "on_close", ()))
    traces["listeners to phases"] = list(getattr(sys.modules.get("memguard.phases"), "_listeners", ()))
    return traces

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from memguard.allocator.snapshot_reader import parse_snapshot
from memguard.backends.virtual import VirtualBackend
from memguard.backends.virtual_mode import VirtualMode
from memguard.text.units import MIB
from tests.backends.virtual_gpu import virtual_gpu


def mib(count: float) -> torch.Tensor:
    return torch.zeros(int(count * MIB), dtype=torch.uint8)


def test_views_share_one_block() -> None:
    """Views, slices and in-place operators take no memory; the storage lives as long as any of them."""
    with virtual_gpu() as gpu:
        x = mib(4)
        view = x.view(2, -1)[0, ::2].t()
        view.add_(1)
        assert gpu.allocated == 4
        del x
        assert gpu.allocated == 4
        del view
        assert gpu.allocated == 0


def test_reads_are_told_from_views_and_writes() -> None:
    """An operator reads what it takes and does not give back; the time of use stays when the storage is gone."""
    with virtual_gpu() as gpu:
        uses = gpu.backend.uses
        x = mib(1)
        use = uses.find(x)
        assert use is not None
        uses.clock = 7
        x.view(2, -1)
        x.add_(1)
        x.split(1024)
        assert (use.reads, use.born, use.used) == (0, 0, 7)
        uses.clock = 8
        torch.stack([x, x])
        assert (use.reads > 0, use.used) == (True, 8)
        del x
        assert (use(), use.used) == (None, 8)


def test_parameters_made_before_are_there() -> None:
    """Modules and gradients that exist before the device is installed are on it."""
    net = nn.Linear(512, 512, bias=False)
    net(torch.randn(1, 512)).sum().backward()
    with virtual_gpu() as gpu:
        assert gpu.allocated == 0
        net.weight.grad = None
        assert gpu.allocated == -1
        del net
        assert gpu.allocated == -2


def test_garbage_of_before_is_not_there() -> None:
    """A tensor in a cycle that nobody reaches is not on the device: it would go at any batch, and the level with it."""
    kept = mib(3)
    gc.collect()
    gc.disable()
    try:
        cycle: list[object] = [mib(5)]
        cycle.append(cycle)
        del cycle
        backend = VirtualBackend(1 << 30)
        backend.install()
        try:
            before = backend.read().allocated_bytes or 0
            gc.collect()
            assert backend.read().allocated_bytes == before >= kept.numel()
        finally:
            backend.remove()
    finally:
        gc.enable()


def test_resize_moves_to_a_block_of_the_new_size() -> None:
    """A storage that grows or is resized to nothing is followed, by an operator or on its own."""
    with virtual_gpu() as gpu:
        x = torch.empty(0, dtype=torch.uint8)
        assert gpu.allocated == 0
        x.resize_(3 * MIB)
        assert gpu.allocated == 3
        assert torch.UntypedStorage.__dict__.get("resize_") is not None
        x.untyped_storage().resize_(0)
        assert gpu.allocated == 0
        x.untyped_storage().resize_(3 * MIB)
        assert gpu.allocated == 3
    assert torch.UntypedStorage.__dict__.get("resize_") is None


def test_sparse_tensors_take_their_parts() -> None:
    """A sparse tensor is its indices and its values."""
    with virtual_gpu() as gpu:
        indices, values = torch.zeros(2, MIB // 16, dtype=torch.int64), torch.zeros(MIB // 16, dtype=torch.float32)
        sparse = torch.sparse_coo_tensor(indices, values, (10, 10), check_invariants=False)
        assert gpu.allocated == 1.25
        copied = sparse.clone()
        assert gpu.allocated == 2.5
        del indices, values, sparse, copied
        assert gpu.allocated == 0


class Scaled(torch.Tensor):
    """A wrapper subclass, as quantized and distributed tensors are: no memory of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        args = [a.inner if isinstance(a, Scaled) else a for a in args]
        out = func(*args, **(kwargs or {}))
        return Scaled(out) if isinstance(out, torch.Tensor) else out


def test_wrapper_subclasses_take_what_they_wrap() -> None:
    """A tensor subclass that wraps another costs what the inner one does, however it was made."""
    before = Scaled(torch.zeros(MIB // 4))
    with virtual_gpu() as gpu:
        x = Scaled(torch.zeros(MIB // 4))
        assert gpu.allocated == 1
        y = x + x
        assert gpu.allocated == 2
        assert type(y) is Scaled
        del x, y, before
        assert gpu.allocated == -1


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_optimizers(options: dict[str, bool]) -> None:
    """Adam's two states are there after the first step, whichever way it is computed."""
    with virtual_gpu() as gpu:
        net = nn.Linear(1024, 1024, bias=False)
        optimizer = torch.optim.AdamW(net.parameters(), **options)
        net(torch.zeros(1, 1024)).sum().backward()
        optimizer.step()
        states_and_all = gpu.allocated
        optimizer.zero_grad()
        assert 16.0 <= states_and_all < 16.1
        assert 12.0 <= gpu.allocated < 12.1


def test_checkpointing_and_autocast() -> None:
    """Checkpointing lowers the peak of a training step, and autocast's copies are seen."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64)) for _ in range(4)])

    def peak(checkpointed: bool, amp: bool) -> float:
        with virtual_gpu() as gpu, torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            x = torch.zeros(256, 64, requires_grad=True)
            for layer in net:
                x = checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
            x.float().sum().backward()
            net.zero_grad()
            return gpu.peak

    plain = peak(False, False)
    assert peak(True, False) < 0.6 * plain
    assert peak(False, True) < 0.8 * plain


def test_out_of_memory_is_pytorchs_own() -> None:
    """The operator raises PyTorch's exception with its text; what did not fit is not there, what was stays."""
    with virtual_gpu(64 * MIB) as gpu:
        x = mib(30)
        with pytest.raises(
            torch.OutOfMemoryError, match=r"Tried to allocate 30\.00 MiB\. GPU 0 has a total capacity of"
        ):
            torch.cat([x, x[: 30 * MIB - x.numel() // 2]])[: 30 * MIB].add(1) if False else [x + i for i in range(9)]
        assert gpu.allocated == 30
        assert gpu.backend.read().num_ooms == 1
        assert gpu.backend.read().num_alloc_retries == 1
        x += 1
        del x
        y = mib(60)
        assert gpu.allocated == y.numel() / MIB


def test_a_held_exception_holds_nothing_of_ours() -> None:
    """The exception's traceback does not keep the results of the operator that failed."""
    with virtual_gpu(64 * MIB) as gpu:
        held = None
        try:
            torch._foreach_add([mib(14)] * 4, 1)
        except torch.OutOfMemoryError as error:
            held = error
        assert held is not None
        assert gpu.allocated <= 14


def test_results_of_a_failed_operator_are_given_back() -> None:
    """Of an operator with several results, of which one does not fit, none stays."""
    with virtual_gpu(64 * MIB) as gpu:
        x = mib(14)
        with pytest.raises(torch.OutOfMemoryError):
            torch._foreach_add([x, x, x, x, x], 1)
        assert gpu.allocated == 14


def test_a_listener_hears_before_the_error_flies() -> None:
    """Whoever listens hears of each failure, and one that fails itself changes nothing."""
    with virtual_gpu(64 * MIB) as gpu:
        heard: list[float] = []
        gpu.backend.on_out_of_memory = lambda: heard.append(gpu.allocated)
        x = mib(10)
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                x.expand(9, -1).contiguous()
        assert heard == [10, 10]
        gpu.backend.on_out_of_memory = lambda: heard.remove(5)
        with pytest.raises(torch.OutOfMemoryError):
            x.expand(9, -1).contiguous()


def test_other_modes_come_and_go() -> None:
    """Under another dispatch mode operators are counted still; if it outlives the device, nothing breaks."""
    seen = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with virtual_gpu() as gpu:
        with Names():
            x = mib(2)
            assert gpu.allocated == 2
        with FakeTensorMode():
            mib(100)
        assert gpu.peak == 2
        assert seen
        del x


@pytest.mark.slow
def test_compiled_functions_run() -> None:
    """torch.compile works as without the device, and its results are counted once an operator uses them."""
    with virtual_gpu() as gpu:
        net = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.GELU()), backend="aot_eager")
        x = torch.zeros(4096, 64)
        net(x).sum().backward()
        assert gpu.peak > 2


@pytest.mark.slow
def test_dynamo_compiles_the_programs_code_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of ours that runs while torch.compile is at work is not compiled: neither the mode nor a storage's end."""
    from torch._dynamo.convert_frame import ConvertFrame

    frames, convert = [], ConvertFrame.__call__

    def noted(self: ConvertFrame, frame: Any, *args: Any, **kwargs: Any) -> Any:
        frames.append(frame.f_code.co_filename)
        return convert(self, frame, *args, **kwargs)

    monkeypatch.setattr(ConvertFrame, "__call__", noted)

    def in_three_graphs(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        z = (y + 1).cos()
        del y
        torch._dynamo.graph_break()
        return z.sum()

    with virtual_gpu():
        compiled = torch.compile(in_three_graphs, backend="eager")
        compiled(torch.zeros(64))
    torch._dynamo.reset()
    assert frames
    assert set(frames) == {__file__}


def test_what_does_not_fit_at_the_start_is_said() -> None:
    """Tensors that exist already and do not fit are an out-of-memory error of the install."""
    x = mib(8)
    backend = VirtualBackend(4 * MIB, conf="")
    with pytest.raises(torch.OutOfMemoryError, match=r"total capacity of 4\.00 MiB"):
        backend.install()
    assert _get_current_dispatch_mode() is None
    del x


def test_nothing_is_left_behind() -> None:
    """After remove there is no mode, and later tensors are not counted; removing twice is harmless."""
    backend = VirtualBackend(1 << 30, conf="")
    backend.install()
    backend.remove()
    backend.remove()
    before = backend.read()
    x = mib(4)
    assert backend.read() == before
    assert _get_current_dispatch_mode() is None
    del x


def test_boundaries_start_peaks_anew() -> None:
    """A boundary tells the peak since the last; the statistics keep the highest of all."""
    with virtual_gpu() as gpu:
        mib(8)
        assert gpu.peak == 8
        gpu.backend.boundary()
        assert gpu.peak == 0
        assert gpu.backend.memory_stats()["allocated_bytes.all.peak"] >= 8 * MIB


def test_empty_cache_tells_what_it_gave_back() -> None:
    """Free segments go back to the driver, and their bytes are returned."""
    with virtual_gpu() as gpu:
        gpu.backend.empty_cache()
        x = mib(30)
        del x
        assert gpu.backend.empty_cache() == 30 * MIB


def test_copies_and_files() -> None:
    """Copies count like any tensor; deepcopy, pickle and torch.save work as ever."""
    with virtual_gpu() as gpu:
        net = nn.Linear(512, 512, bias=False)
        twin = copy.deepcopy(net)
        twin.weight.mul(1)
        assert gpu.allocated == 2
        file = io.BytesIO()
        torch.save(net.state_dict(), file)
        file.seek(0)
        net.load_state_dict(torch.load(file))
        assert gpu.allocated == 2


def test_data_loader_workers_are_left_alone() -> None:
    """A worker's tensors are its own; a batch counts from the first operator that uses it; torch 2.4 lets go late."""
    late = 4 if torch.__version__.startswith(("2.4", "2.5", "2.6")) else 0
    data = TensorDataset(torch.zeros(64, MIB // 16))
    with virtual_gpu() as gpu:
        for (batch,) in DataLoader(data, 16, num_workers=1, multiprocessing_context="fork"):
            batch.add(1)
            assert 4 <= gpu.allocated <= 4 + late
        del batch
        assert gpu.allocated <= 2 * late


def test_a_thread_that_ends_leaves_no_mode_behind() -> None:
    """Torch would drop it after the thread has left the interpreter; where that ends too, the process would abort."""
    seen: list[object] = []

    class Last:
        def __del__(self) -> None:
            seen.append(_get_current_dispatch_mode())

    def train() -> None:
        gpu.backend.follow_thread()
        seen.append(_get_current_dispatch_mode())
        later.value = Last()  # of the thread's variables the last to go

    later = threading.local()
    with virtual_gpu() as gpu:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert isinstance(seen[0], VirtualMode) and seen[1:] == [None]


def test_tensors_of_other_threads() -> None:
    """What another thread makes counts once this one uses it, or when it is included."""
    with virtual_gpu() as gpu:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.extend((mib(1), mib(2))))
        thread.start()
        thread.join()
        assert gpu.allocated == 0
        made[0].add(1)
        assert gpu.allocated == 1
        gpu.backend.include(made)
        assert gpu.allocated == 3
        made.clear()
        assert gpu.allocated == 0


def test_results_are_bit_identical() -> None:
    """A training computes the same numbers on the virtual GPU as without it."""

    def train() -> list[float]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.Adam(net.parameters())
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(torch.randn(16, 32)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    without = train()
    with virtual_gpu():
        assert train() == without


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTORCH_CUDA_ALLOC_CONF configures it, as it would a GPU; a wrong value is an error."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    backend = VirtualBackend(1 << 30)
    backend.install()
    x = mib(3)
    assert all(segment["is_expandable"] for segment in backend.snapshot()["segments"])
    backend.remove()
    del x
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:1")
    with pytest.raises(ValueError, match="max_split_size_mb"):
        VirtualBackend(1 << 30)


def test_device_name() -> None:
    """The device is called as the user would write it."""
    assert VirtualBackend(24 << 30, conf="").device == "virtual:24GiB"
    assert VirtualBackend(1536 * MIB, conf="").device == "virtual:1536MiB"
    assert VirtualBackend(1000, conf="").device == "virtual:1000"


def test_history_names_the_line() -> None:
    """With history on, the snapshot's blocks and trace carry the stack of the line that allocated."""
    with virtual_gpu(64 * MIB) as gpu:
        gpu.backend.record_history(True, max_entries=100)
        x = mib(5)
        snapshot = gpu.backend.snapshot()
        block = next(b for s in snapshot["segments"] for b in s["blocks"] if b["requested_size"] == 5 * MIB)
        innermost = block["frames"][0]
        assert (os.path.basename(innermost["filename"]), innermost["name"]) == ("test_virtual.py", "mib")
        with pytest.raises(torch.OutOfMemoryError):
            mib(100)
        del x
        actions = [event["action"] for event in gpu.backend.snapshot()["device_traces"][0]]
        assert {"alloc", "segment_alloc", "free_requested", "free_completed", "oom"} <= set(actions)
        gpu.backend.record_history(False)
        assert gpu.backend.snapshot()["device_traces"] == [[]]


def test_a_history_stores_each_frame_once() -> None:
    """As PyTorch does, so that the snapshot's file is as small, and opens."""
    with virtual_gpu(64 * MIB) as gpu:
        gpu.backend.record_history(True, max_entries=1000)
        for _ in range(100):
            mib(1)
        data = pickle.dumps(gpu.backend.snapshot())
        gpu.backend.record_history(False)
    assert len(parse_snapshot(data).traces[0]) > 200
    frames = [frame for event in pickle.loads(data)["device_traces"][0] for frame in event["frames"]]
    assert len({id(frame) for frame in frames}) < len(frames) / 50


def test_garbage_cycles_are_freed_when_python_collects_them() -> None:
    """Memory in a reference cycle stays until the collector runs, and is then given back."""
    with virtual_gpu() as gpu:
        gc.disable()
        try:
            cycle: list[object] = [mib(2)]
            cycle.append(cycle)
            del cycle
            assert gpu.allocated == 2
        finally:
            gc.enable()
        gc.collect()
        assert gpu.allocated == 0

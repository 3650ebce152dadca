"""A step run for real on this machine's GPU, with its allocation history. Called in a process made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from memguard.allocator.snapshot_reader import snapshot_of
from memguard.backends.cuda_history import CudaHistory
from memguard.errors import MemGuardError
from memguard.forecast.fakes.tensors import inside
from memguard.forecast.forecasting import environment_conf
from memguard.forecast.recorded import Measured, Moment, Owned, trace_of_history
from memguard.forecast.session import optimizers_of
from memguard.forecast.simulate import StepMemory
from memguard.forecast.target import batch_parameter, call_target, load_target
from memguard.forecast.trace import Recorded

_MOST_EVENTS = 4_000_000


def measure_target(target: str, batch: int | None, steps: int) -> Measured:
    """What a function's steps take on this machine's GPU.

    Raises:
        MemGuardError: There is no GPU, or the function does not use it.
    """
    if not torch.cuda.is_available():
        raise MemGuardError("--measure runs the step on a CUDA GPU, and PyTorch sees none here")
    torch.cuda.init()
    history = CudaHistory()
    history.record_history(True, _MOST_EVENTS)
    function = load_target(target)
    takes_batch = batch_parameter(function) is not None
    device = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(device)
    run = _Run(device)
    text = None
    try:
        run.steps(lambda: call_target(function, batch), steps)
    except torch.OutOfMemoryError as error:
        text = str(error)
    return Measured(
        batch=batch,
        takes_batch=takes_batch,
        device=properties.name,
        torch_version=str(torch.__version__),
        steps=tuple(run.memory),
        allocated_peak_bytes=run.allocated_peak_bytes,
        reserved_peak_bytes=run.reserved_peak_bytes,
        num_alloc_retries=run.stats()["num_alloc_retries"],
        outside_bytes=run.outside_bytes,
        out_of_memory=text,
        trace=None
        if text is not None
        else trace_of_history(
            snapshot_of(history.snapshot()),
            device,
            run.moments,
            run.owned,
            recorded=Recorded(device=properties.name, alloc_conf=environment_conf()),
            runner=(__file__, _Run.steps.__name__),
            compute_capability=(properties.major, properties.minor),
            torch_version=str(torch.__version__),
            batch=batch,
        ),
    )


class _Run:
    """The steps, and what is read from the allocator between them: nothing is allocated for that."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.moments: list[Moment] = []
        self.owned: list[Owned] = []
        self.memory: list[StepMemory] = []
        self.allocated_peak_bytes = self.reserved_peak_bytes = self.outside_bytes = 0

    def stats(self) -> dict[str, int]:
        """The allocator's own counters."""
        return torch.cuda.memory_stats(self._device)

    def steps(self, make: Callable[[], Any], steps: int) -> None:
        """Builds and runs them."""
        try:
            model, optimizers, step = make()
            if not self.stats().get("allocation.all.allocated"):
                raise MemGuardError(
                    "--measure runs the function as it is, and it has put nothing on the GPU: let it move the model "
                    'and the inputs there (.to("cuda"))'
                )
            optimizers = optimizers_of(optimizers)
            hook = register_optimizer_step_post_hook(lambda *_: self._own(model, optimizers))
            try:
                for _ in range(steps):
                    self._step(step)
                self._boundary()
            finally:
                hook.remove()
            self._own(model, optimizers)
        finally:
            self._keep_peaks()

    def _step(self, step: Callable[[], Any]) -> None:
        start = self._boundary()
        step()
        self._keep_peaks()
        stats = self.stats()
        self.memory.append(
            StepMemory(
                allocated_start_bytes=start,
                allocated_peak_bytes=stats["allocated_bytes.all.peak"],
                allocated_end_bytes=stats["allocated_bytes.all.current"],
                reserved_peak_bytes=self.reserved_peak_bytes,
            )
        )

    def _boundary(self) -> int:
        """Bytes allocated between two steps; peaks begin anew."""
        self._keep_peaks()
        stats = self.stats()
        self.moments.append(Moment(stats["allocation.all.allocated"], stats["allocation.all.freed"]))
        torch.cuda.reset_peak_memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        self.outside_bytes = max(self.outside_bytes, total - free - stats["reserved_bytes.all.current"])
        return stats["allocated_bytes.all.current"]

    def _keep_peaks(self) -> None:
        stats = self.stats()
        self.allocated_peak_bytes = max(self.allocated_peak_bytes, stats.get("allocated_bytes.all.peak", 0))
        self.reserved_peak_bytes = max(self.reserved_peak_bytes, stats.get("reserved_bytes.all.peak", 0))

    def _own(self, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
        """Whose memory is whose, as far as model and optimizers tell."""
        count = self.stats()["allocation.all.allocated"]

        def own(owner: str, tensor: Any) -> None:
            if isinstance(tensor, torch.Tensor):
                for part in inside(tensor):
                    if part.is_cuda and part.layout is torch.strided:
                        self.owned.append(Owned(count, part.untyped_storage().data_ptr(), owner))

        parameters = {id(p): p for p in model.parameters()} if model is not None else {}
        for optimizer in optimizers:
            parameters |= {id(p): p for group in optimizer.param_groups for p in group["params"]}
            for state in optimizer.state.values():
                for value in state.values() if isinstance(state, dict) else ():
                    own("optimizer states", value)
        for buffer in model.buffers() if model is not None else ():
            own("buffers", buffer)
        for parameter in parameters.values():
            own("gradients", parameter.grad)
            own("parameters", parameter)

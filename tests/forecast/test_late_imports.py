import subprocess
import sys

SCRIPT = """
from memguard.forecast.child import in_child
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.fakes.without_dynamo import warm_up

def build():
    import torch.distributed.tensor.parallel  # as transformers does
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._api import DTensor as same
    assert DTensor is same
    weight = torch.zeros(4, 4, device="cuda", requires_grad=True)
    return None, None, lambda: weight.mul(2).sum().backward()

warm_up()
print(in_child(lambda: trace(build, Setting(steps=1))).operators)
"""


def test_a_step_may_import_distributed_tensors_while_it_is_traced():
    """They are kept out for speed, and loaded whole when a library asks for a part of them."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr[-2000:]


SYMBOLS = """
import sys
import torch
from memguard.forecast.fakes.without_dynamo import warm_up

warm_up()
from torch.fx.experimental.symbolic_shapes import guard_or_false, has_free_symbols, sym_eq, statically_known_true
answers = [guard_or_false(True), guard_or_false(3 < 2), has_free_symbols((1, 2)), sym_eq((1, 2), [1, 2]),
           sym_eq([1], [1, 2]), statically_known_true(2 > 1)]
assert "sympy.core" not in sys.modules, "loaded without need"
assert sys.modules["sympy"].__spec__ is not None  # asked by find_spec

from torch.fx.experimental.symbolic_shapes import ShapeEnv
import sympy
import sympy.core
size = ShapeEnv().create_unbacked_symint()
assert has_free_symbols(size) and not guard_or_false(size == 3) and type(sym_eq(size, 3)) is torch.SymBool
assert isinstance(size.node.expr, sympy.Basic) and sympy.Basic is sympy.core.Basic
assert sys.modules["sympy"].core is sympy.core and sympy.__version__
import torch.fx.experimental.symbolic_shapes as real
assert answers == [real.guard_or_false(True), real.guard_or_false(3 < 2), real.has_free_symbols((1, 2)),
                   real.sym_eq((1, 2), [1, 2]), real.sym_eq([1], [1, 2]), real.statically_known_true(2 > 1)]
try:
    guard_or_false(1)
except AssertionError:
    print("refused as PyTorch refuses it")
"""


def test_symbols_are_loaded_when_there_is_one():
    """Plain sizes are answered without sympy, as PyTorch would answer; a symbol, or a user of sympy, loads it."""
    done = subprocess.run([sys.executable, "-c", SYMBOLS], capture_output=True, text=True, check=False)
    assert done.stdout == "refused as PyTorch refuses it\n", done.stderr[-2000:]

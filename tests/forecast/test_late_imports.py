import subprocess
import sys

SCRIPT = """
from memguard.forecast.child import in_child
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.without_dynamo import warm_up

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

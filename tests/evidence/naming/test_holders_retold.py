"""Who holds old graphs where reports of others hid them: made-up names, log records, wrapped lists, piles of hooks."""

from pathlib import Path

import pytest

from tests.evidence.scripts import marked_lines, run

RETOLD: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

STEP = """
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def step(x, y):
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss
"""

RETOLD["attributes named by a number"] = (
    "Log.loss_",
    """
class Log:
    pass
log = Log()
for i, (x, y) in enumerate(batches()):
    setattr(log, f"loss_{i}", step(x, y))  # <-
""",
)
RETOLD["globals named by a number"] = (
    "loss_",
    """
for i, (x, y) in enumerate(batches()):
    globals()[f"loss_{i}"] = step(x, y)  # <-
""",
)
RETOLD["a list in a UserList"] = (
    "history",
    """
from collections import UserList
class History(UserList):
    def record(self, **values):
        self[-1]["batches"].append(values)  # <-
history = History([{"batches": []}])
for x, y in batches():
    history.record(loss=step(x, y))
""",
)
RETOLD["records of a log handler"] = (
    "buffer",
    """
import logging, logging.handlers
logger = logging.getLogger("retold")
logger.setLevel(logging.DEBUG)
logger.propagate = False
logger.addHandler(logging.handlers.MemoryHandler(10000))
for x, y in batches():
    logger.debug("loss %s", step(x, y))  # <-
""",
)
RETOLD["records of a handler of one's own"] = (
    "Incidents.records",
    """
import logging
class Incidents(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []
    def emit(self, record):
        self.records.append(record)  # <-
logger = logging.getLogger("retold.own")
logger.setLevel(logging.DEBUG)
logger.propagate = False
logger.addHandler(Incidents())
for x, y in batches():
    logger.debug("loss %s", step(x, y))
""",
)
RETOLD["an array of objects"] = (
    "table",
    """
import numpy as np
table = np.empty(14, dtype=object)
for i, (x, y) in enumerate(batches()):
    loss = step(x, y)
    table[i] = loss  # <-
""",
)


@pytest.mark.parametrize("case", RETOLD)
def test_names_the_holder_and_the_line(case: str, tmp_path: Path) -> None:
    """The first holder is the marked statement's."""
    holder, script = RETOLD[case]
    found = run(STEP + script, tmp_path)
    assert found, "nobody was found"
    assert holder in str(found[0].place.holder)
    assert found[0].place.line in marked_lines(tmp_path / "script.py"), str(found[0])

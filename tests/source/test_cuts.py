"""Where the source cuts the graph of a state, from the syntax tree alone."""

from pathlib import Path

import pytest

from memguard.source.values import is_graph_cut

OTHERS = {
    "self.hidden = self.hidden.detach()": True,
    "self.hidden.detach_()": True,
    "self.hidden = tuple(h.detach() for h in self.hidden)": True,
    "self.hidden = tree_map(lambda h: h.detach(), self.hidden)": True,
    "self.hidden = tuple(map(torch.detach, self.hidden))": True,
    "self.hidden = repackage(self.hidden)": True,
    "start = self.hidden.detach()\n        self.hidden = self.begin(start)": True,
    "start = self.hidden.detach()\n        other = start.clone()\n        out, self.hidden = self.net(x, other)": True,
    "log.append(self.hidden.data)\n        self.hidden = log[-1]": True,
    "return self.hidden.detach()": True,
    "self.restart(self.hidden.detach())": True,
    "out, self.hidden = self.net(x, self.hidden.detach())": True,
    "log.append(self.hidden.detach())": False,
    "start = self.hidden.detach().clone()\n        return start": False,
    "for k, v in zip(x, (mask, self.hidden.detach())):\n            log[k] = v\n        return log": False,
    "q = self.hidden.detach()\n        return q": False,
    "self.log['start'] = self.hidden.data": False,
    "shown = [h.detach() for h in self.hidden]": False,
    "self.hidden = self.hidden * mask": False,
    "out = x.detach()\n        self.hidden = self.net(out, self.hidden)": False,
}


@pytest.mark.parametrize("text", OTHERS)
def test_a_state_is_cut_only_where_what_is_detached_may_come_back_to_it(text: str, tmp_path: Path) -> None:
    """A copy that is logged or stored as the start of a sequence leaves the state with its graph."""
    file = tmp_path / "case.py"
    file.write_text(
        "class Actor:\n    def act(self, x):\n        q, self.hidden = self.net(x, self.hidden)\n"
        f"    def other(self, x, mask):\n        {text}\n"
    )
    assert is_graph_cut(str(file), 3, "Actor.hidden") is OTHERS[text]


def test_a_state_that_is_made_of_itself_alone_is_not_cut_there(tmp_path: Path) -> None:
    """``state = model(state)`` carries it; the same on another line may be what cuts it."""
    file = tmp_path / "case.py"
    file.write_text("for step in steps:\n    state = model(state)\n")
    assert not is_graph_cut(str(file), 2, "state") and is_graph_cut(str(file), 1, "state")

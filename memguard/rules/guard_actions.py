"""What memguard's guards did, reported like findings but without a rule."""

from __future__ import annotations

from memguard.rules.explanation import Explanation

_AGAINST = "How to switch it off"

ACTS: tuple[Explanation, ...] = (
    Explanation(
        code="MG001",
        name="validation-guarded",
        title="memguard's own act: a forward in eval mode ran without an autograd graph, because no backward uses it.",
        parts={
            _AGAINST: 'Put the forward under `with memguard.allow("grad"):` if gradients are wanted there, or pass '
            '`validation="warn"`.'
        },
    ),
    Explanation(
        code="MG002",
        name="cache-emptied",
        title="memguard's own act: cached memory went back to the driver, as the option `empty_cache` asks.",
        parts={_AGAINST: 'Leave the option out; the default is `empty_cache="never"`.'},
    ),
)

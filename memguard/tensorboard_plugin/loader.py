"""What TensorBoard loads through the entry point: it must import whatever happens, or TensorBoard would not start."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from tensorboard.plugins import base_plugin

NAME = "memguard"


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard has no types
    """Makes the Memory tab; everything that could fail is imported only here, where TensorBoard survives it."""

    def fix_flags(self, flags: Any) -> None:
        """Keeps all of our own events: TensorBoard would show 10 or 100 of them."""
        with contextlib.suppress(AttributeError):  # a TensorBoard without that flag shows fewer of them
            flags.samples_per_plugin.setdefault(NAME, 0)

    def load(self, context: Any) -> Any:
        """The plugin, or None (and a word in the log) if it cannot be made."""
        try:
            from memguard.tensorboard_plugin.plugin import MemoryPlugin

            plugin = MemoryPlugin(context)
            threading.Thread(target=plugin.warm, name="memguard-warm", daemon=True).start()
            return plugin
        except Exception as error:
            logging.getLogger(__name__).warning("memguard: no Memory tab in this TensorBoard (%s)", error)
            return None

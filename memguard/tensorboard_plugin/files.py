"""Reading recordings wherever TensorBoard reads events: local disks directly, other file systems through its gfile."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any, Protocol, final

from memguard.recording.format import FOLDER
from memguard.recording.reader import lies_there

_PRUNED = frozenset({"checkpoints", "wandb", "__pycache__", "node_modules", "site-packages"})


class GrowingFile(Protocol):
    """A file that somebody else appends to."""

    def size(self) -> int:
        """Its size now, in bytes; 0 if it is gone."""

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end."""


@final
class LocalFile:
    """A file on a disk of this machine; none if it is a pipe or a link to elsewhere. Nothing stays open between reads.

    Args:
        path: Where it is.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        """Its size now, in bytes; 0 if it is gone."""
        try:
            return os.stat(self.path).st_size if lies_there(self.path) else 0
        except OSError:
            return 0

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end, none if it is gone."""
        if not lies_there(self.path):
            return b""
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                parts = []
                while size > 0 and (part := file.read(size)):
                    parts.append(part)
                    size -= len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
        except OSError:  # gone meanwhile, as for `size`
            return b""


@final
class RemoteFile:
    """A file behind TensorBoard's gfile. What was appended is copied once into a nameless temporary file.

    Args:
        path: Its URL.
        gfile: ``tensorboard.compat.tf.io.gfile``.
    """

    def __init__(self, path: str, gfile: Any) -> None:
        self.path, self._gfile = path, gfile
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object
        weakref.finalize(self, self._copy.close)
        self._copied = 0
        self._token: Any = None

    def size(self) -> int:
        """Its size now, in bytes, all of them copied; what is there already if it cannot be asked."""
        try:
            if int(self._gfile.stat(self.path).length) > self._copied:
                self._fetch()
        except Exception:  # every file system has errors of its own
            pass
        return self._copied

    def _fetch(self) -> None:
        with self._gfile.GFile(self.path, "rb") as file:
            if hasattr(file, "seek"):  # TensorFlow's own
                file.seek(self._copied)
            else:  # TensorBoard's stand-in goes on from a token (checked in 2.15 to 2.21)
                file.continuation_token = self._token
            self._copy.seek(0, os.SEEK_END)
            while data := file.read(1 << 22):
                self._copy.write(data)
                self._copied += len(data)
            self._token = getattr(file, "continuation_token", None)
            self._copy.flush()

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end."""
        return os.pread(self._copy.fileno(), size, offset) if hasattr(os, "pread") else self._seek(offset, size)

    def _seek(self, offset: int, size: int) -> bytes:
        self._copy.seek(offset)
        return self._copy.read(size)


def is_remote(path: str) -> bool:
    """Whether a logdir is an URL."""
    return "://" in path


def walk(root: str, gfile: Any) -> Iterator[tuple[str, list[str]]]:
    """All folders named ``memguard`` below a root (or the root itself), with the .bin files in them, sorted.

    Args:
        root: A logdir, local or an URL.
        gfile: ``tensorboard.compat.tf.io.gfile``, for an URL.
    """
    if is_remote(root):
        for folder, _, files in gfile.walk(root):
            name = folder.rstrip("/")
            if name.rsplit("/", 1)[-1] == FOLDER:
                yield name, _bins(files)
        return
    for folder, folders, files in os.walk(root):
        if os.path.basename(os.path.normpath(folder)) == FOLDER:
            folders.clear()
            yield folder, _bins(files)
            continue
        folders[:] = sorted(name for name in folders if name not in _PRUNED and not name.startswith("."))


def _bins(files: list[str]) -> list[str]:
    bins = (name for name in files if name.startswith("rank") and name.endswith(".bin"))
    return sorted(bins, key=lambda name: name.removesuffix(".bin"))


def roots(logdir: str, logdir_spec: str) -> list[tuple[str, str]]:
    """The (prefix, path) of every root that TensorBoard was given; runs are named like TensorBoard names them.

    Args:
        logdir: ``--logdir``, or empty.
        logdir_spec: ``--logdir_spec``: ``name:path,...``, or empty.
    """
    if logdir:
        return [("", logdir if is_remote(logdir) else os.path.realpath(os.path.expanduser(logdir)))]
    found = []
    for each in filter(None, logdir_spec.split(",")):
        named = ":" in each and each[0] != "/" and not os.path.splitdrive(each)[0]
        scheme = each.partition("://")[0]
        if named and not ("://" in each and scheme.isalnum()):
            name, _, path = each.partition(":")
        else:
            name, path = "", each
        found.append((name, path if is_remote(path) else os.path.realpath(os.path.expanduser(path))))
    return found


def run_name(prefix: str, root: str, folder: str) -> str:
    """The name of the run that a ``memguard`` folder belongs to, as TensorBoard names it."""
    if is_remote(root):
        name = folder.rstrip("/").removesuffix("/" + FOLDER)[len(root.rstrip("/")) :].strip("/") or "."
    else:
        parent = os.path.dirname(os.path.normpath(folder))
        name = os.path.relpath(parent, root).replace(os.sep, "/")
        if name == "..":  # the logdir is the memguard folder itself
            name = "."
    return f"{prefix}/{name}" if prefix else name

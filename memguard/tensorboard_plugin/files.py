"""Reading recordings wherever they lie: local disks directly, URLs through fsspec or TensorBoard's file systems."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Any, Protocol, final

from memguard.recording.format import FOLDER
from memguard.recording.reader import lies_there
from memguard.recording.remote import RemoteFolder
from memguard.text.urls import is_url, join

_PRUNED = frozenset({"checkpoints", "wandb", "__pycache__", "node_modules", "site-packages"})


class GrowingFile(Protocol):
    """A file that somebody else appends to."""

    def size(self) -> int:
        """Its size now, in bytes; 0 if it is gone."""

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end."""


@final
class LocalFile:
    """A file on a disk of this machine; none if it is a pipe or a link to elsewhere. Nothing stays open meanwhile."""

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


class RemoteFiles(Protocol):
    """The files below a URL."""

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """All folders named ``memguard``, by their URLs, with the names of the files in each."""

    def length(self, url: str) -> int:
        """The size of a file in bytes."""

    def append_to(self, copy: IO[bytes], url: str, copied: int, token: Any) -> Any:
        """Appends what a file has after the first bytes to a copy.

        Args:
            copy: The copy, at its end.
            url: The file.
            copied: How many bytes of it the copy has.
            token: What the last call returned; None the first time.
        """


@final
class FilesOfFsspec:
    """The files below a URL that fsspec reaches, as they do for ``memguard report``.

    Raises:
        ValueError: fsspec does not know the scheme, or is not installed.
    """

    def __init__(self, root: str) -> None:
        self._root, self._folder = root.rstrip("/"), RemoteFolder(root)

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """All folders named ``memguard``, by their URLs, with the names of the files in each."""
        for folder, names in self._folder.folders():
            yield join(self._root, folder) if folder else self._root, names

    def length(self, url: str) -> int:
        """The size of a file in bytes."""
        return self._folder.size(url[len(self._root) + 1 :])

    def append_to(self, copy: IO[bytes], url: str, copied: int, token: Any) -> Any:
        """Appends what a file has after the first bytes to a copy."""
        copy.write(self._folder.read(url[len(self._root) + 1 :], copied))


@final
class FilesOfTensorBoard:
    """The files below a URL that only TensorBoard's own file systems reach."""

    def __init__(self, root: str) -> None:
        from tensorboard.compat import tf

        self._root, self._gfile = root, tf.io.gfile

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """All folders named ``memguard``, by their URLs, with the names of the files in each."""
        for folder, _, files in self._gfile.walk(self._root):
            name = folder.rstrip("/")
            if name.rsplit("/", 1)[-1] == FOLDER:
                yield name, files

    def length(self, url: str) -> int:
        """The size of a file in bytes."""
        return int(self._gfile.stat(url).length)

    def append_to(self, copy: IO[bytes], url: str, copied: int, token: Any) -> Any:
        """Appends what a file has after the first bytes to a copy; returns where the next call goes on."""
        with self._gfile.GFile(url, "rb") as file:
            if hasattr(file, "seek"):  # TensorFlow's own
                file.seek(copied)
            else:  # TensorBoard's stand-in goes on from a token (checked in 2.15 to 2.21)
                file.continuation_token = token
            while data := file.read(1 << 22):
                copy.write(data)
            return getattr(file, "continuation_token", None)


def files_below(root: str) -> RemoteFiles:
    """The files below a URL, through fsspec, else through TensorBoard."""
    try:
        return FilesOfFsspec(root)
    except (ValueError, ImportError):  # a scheme of TensorFlow's own, or no fsspec
        return FilesOfTensorBoard(root)


@final
class RemoteFile:
    """A file behind a URL. What was appended is copied once into a nameless temporary file."""

    def __init__(self, url: str, files: RemoteFiles) -> None:
        self.path, self._files = url, files
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object
        weakref.finalize(self, self._copy.close)
        self._copied = 0
        self._token: Any = None

    def size(self) -> int:
        """Its size now, in bytes, all of them copied; what is there already if it cannot be asked."""
        try:
            if self._files.length(self.path) > self._copied:
                self._copy.seek(0, os.SEEK_END)
                self._token = self._files.append_to(self._copy, self.path, self._copied, self._token)
                self._copy.flush()
                self._copied = self._copy.tell()
        except Exception:  # every file system has errors of its own
            pass
        return self._copied

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer at the end."""
        return os.pread(self._copy.fileno(), size, offset) if hasattr(os, "pread") else self._seek(offset, size)

    def _seek(self, offset: int, size: int) -> bytes:
        self._copy.seek(offset)
        return self._copy.read(size)


def walk(root: str, remote: RemoteFiles | None = None) -> Iterator[tuple[str, list[str]]]:
    """All folders named ``memguard`` below a root (or the root itself), with the .bin files in them, sorted."""
    if remote is not None:
        for folder, files in remote.walk():
            yield folder, _bins(files)
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
        return [("", logdir if is_url(logdir) else os.path.realpath(os.path.expanduser(logdir)))]
    found = []
    for each in filter(None, logdir_spec.split(",")):
        named = ":" in each and each[0] != "/" and not os.path.splitdrive(each)[0]
        scheme = each.partition("://")[0]
        if named and not ("://" in each and scheme.isalnum()):
            name, _, path = each.partition(":")
        else:
            name, path = "", each
        found.append((name, path if is_url(path) else os.path.realpath(os.path.expanduser(path))))
    return found


def run_name(prefix: str, root: str, folder: str) -> str:
    """The name of the run that a ``memguard`` folder belongs to, as TensorBoard names it."""
    if is_url(root):
        name = folder.rstrip("/").removesuffix("/" + FOLDER)[len(root.rstrip("/")) :].strip("/") or "."
    else:
        parent = os.path.dirname(os.path.normpath(folder))
        name = os.path.relpath(parent, root).replace(os.sep, "/")
        if name == "..":  # the logdir is the memguard folder itself
            name = "."
    return f"{prefix}/{name}" if prefix else name

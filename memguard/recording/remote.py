"""A directory behind a URL, read and written through fsspec. No torch."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, final

from memguard.errors import RecordingError
from memguard.recording.format import FOLDER, place_of
from memguard.text.urls import check_url, shown

_APPENDING = frozenset({"file", "local", "memory"})
"""Schemes whose files can be appended to; elsewhere an object is written anew, as a whole."""
_WITHOUT_FOLDERS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"})
"""Object stores: a folder need not exist, and to make one could make a bucket."""
_LEFT_OUT = frozenset({"checkpoints", "wandb", "__pycache__", "node_modules", "site-packages"})
_Result = TypeVar("_Result")


@final
class RemoteFolder:
    """A directory behind a URL. Nothing is asked before the first method is called; no listing is cached.

    Args:
        url: As fsspec takes it: ``s3://bucket/run``, ``gs://...``, ``abfs://...``, ``memory://run``, ``file:///run``.

    Raises:
        ValueError: fsspec does not know the scheme, or the package that it needs is missing.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        check_url(url)
        self.url = url.rstrip("/")
        options = {"use_listings_cache": False, "skip_instance_cache": True}  # neither ours to share nor to clear
        self._fs: Any
        self._fs, path = fsspec.core.url_to_fs(url, **options)
        self._root = str(path).rstrip("/")
        schemes = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self.appends = bool(schemes & _APPENDING)
        """Whether `write` takes a part of a file; else each write is the whole of it."""
        self._makes_folders = not schemes & _WITHOUT_FOLDERS

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The files in one of its folders, each with its size in bytes; empty where there is none.

        Raises:
            Exception: The file system's own, where it cannot be reached.
        """
        try:
            listed = self._fs.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        return {_name(each["name"]): int(each.get("size") or 0) for each in listed if each.get("type") == "file"}

    def size(self, name: str) -> int:
        """The size of one file in bytes.

        Raises:
            Exception: As `sizes`; FileNotFoundError where there is no such file.
        """
        return int(self._fs.info(self._path(name))["size"])

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of one file, or some of them.

        Raises:
            Exception: As `size`.
        """
        return bytes(self._fs.cat_file(self._path(name), start=start, end=end))

    def write(self, name: str, data: bytes, *, appended: bool = False) -> None:
        """Writes one file, with the folders above it.

        Args:
            name: Its path within the directory.
            data: The whole of it, or what is new.
            appended: Whether it is what is new; only where `appends`.

        Raises:
            Exception: The file system's own.
        """
        path = self._path(name)
        try:
            self._put(path, data, appended=appended)
        except FileNotFoundError:
            if not self._makes_folders:
                raise
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._put(path, data, appended=appended)

    def fetch(self, names: Iterable[str], into: Path) -> None:
        """Copies files into a directory of this machine, under their last names, in parallel where fsspec can.

        Raises:
            Exception: The file system's own.
        """
        wanted = list(names)
        self._fs.get([self._path(name) for name in wanted], [str(into / _name(name)) for name in wanted])

    def folders(self) -> Iterator[tuple[str, list[str]]]:
        """All folders named ``memguard`` in it, by their paths within the directory, with the names of their files.

        Raises:
            Exception: The file system's own.
        """
        for path, folders, files in self._fs.walk(self._root or "/", topdown=True, on_error="raise"):
            own = str(path).rstrip("/")
            if _name(own) == FOLDER:
                yield own[len(self._root) :].strip("/"), sorted(map(_name, files))
                folders.clear()
                continue
            for name in [each for each in folders if each in _LEFT_OUT or each.startswith(".")]:
                folders.pop(name) if isinstance(folders, dict) else folders.remove(name)

    def _put(self, path: str, data: bytes, *, appended: bool) -> None:
        if appended:
            with self._fs.open(path, "ab") as file:
                file.write(data)
        else:
            self._fs.pipe_file(path, data)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


@final
class LocalCopies:
    """A directory of this machine's for copies, gone with this object or with the process.

    Attributes:
        path: The directory.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="memguard-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def folders_of_recordings(url: str) -> tuple[RemoteFolder, dict[str, list[str]]]:
    """The ``memguard`` folders below a URL with the names of their recordings, each oldest first.

    Args:
        url: A run's directory, its ``memguard`` folder, one with many runs below it, or one recording.

    Raises:
        RecordingError: It cannot be reached, or holds no recording.
    """
    parent, _, name = url.rstrip("/").rpartition("/")
    if place_of(name) is not None:
        return answered(url, lambda: RemoteFolder(parent)), {"": [name]}
    root = answered(url, lambda: RemoteFolder(url))
    listed = answered(url, lambda: _listed(root))
    found = {folder: [name for name in names if place_of(name) is not None] for folder, names in listed.items()}
    found = {folder: names for folder, names in found.items() if names}
    if not found:
        raise RecordingError(f"{shown(url)} holds no memguard recording; is it the directory of a guarded run?")
    return root, found


def fetch_recordings(root: RemoteFolder, folder: str, names: Iterable[str], into: Path) -> list[Path]:
    """Copies recordings, each with its lines, to this machine; returns the .bin files.

    Raises:
        RecordingError: They cannot be read.
    """
    bins = [f"{folder}/{name}".strip("/") for name in names]
    there = answered(root.url, lambda: root.sizes(folder))
    lines = [path.removesuffix(".bin") + ".jsonl" for path in bins]
    wanted = bins + [path for path in lines if _name(path) in there]
    answered(root.url, lambda: root.fetch(wanted, into))
    return [into / _name(path) for path in bins]


def answered(url: str, ask: Callable[[], _Result]) -> _Result:
    """What a file system answers; its own errors, of many classes, as one of memguard's.

    Raises:
        RecordingError: It raised something.
    """
    try:
        return ask()
    except RecordingError:
        raise
    except Exception as error:
        raise RecordingError(f"{shown(url)} cannot be read: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Why a file system did not answer, in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _listed(root: RemoteFolder) -> dict[str, list[str]]:
    try:
        return dict(root.folders())
    except FileNotFoundError:
        return {}


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]

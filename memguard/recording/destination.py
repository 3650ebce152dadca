"""Where a run is recorded: in its directory, or first on a local disk where that is a URL or is shared by machines.

A recording is appended to with every batch. An object store does not append, and a file system that many nodes share
is slow, and others need it too: there the files are written into the machine's temporary directory and copied by
another thread (`memguard.recording.upload`). No torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import final
from urllib.parse import unquote

from memguard.text.urls import is_url, shown

_MOUNTS = Path("/proc/self/mountinfo")
_SHARED = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "glusterfs", "wekafs", "panfs"})
_SHARED_BY_FUSE = ("ceph", "glusterfs", "sshfs", "s3fs", "gcsfuse", "mountpoint-s3", "blobfuse", "juicefs", "rclone")
"""Types of file systems that are asked over a network."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The directory of a run."""

    local: Path
    """Where its files are written."""
    url: str | None = None
    """Where they are copied to; None where they are written there at once."""
    shared: Path | None = None
    """The same as a path, where it is one."""

    @property
    def told(self) -> str:
        """The run's directory as the user knows it."""
        return str(self.shared) if self.shared is not None else shown(self.url) if self.url else str(self.local)


def find_destination(logdir: str | os.PathLike[str], *, mounts: Path = _MOUNTS) -> Destination:
    """Where the run of a directory is written, and where its files are copied to.

    Args:
        logdir: The run's directory: a path, or a URL.
        mounts: The system's list of mounted file systems; tests bring their own.
    """
    text = os.fspath(logdir)
    if not is_url(text):
        path = Path(text)
        if not _is_shared(path, mounts):
            return Destination(local=path)
        path = path.absolute()
        return Destination(local=_local(f"file://{path}"), url=f"file://{path}", shared=path)
    scheme, _, rest = text.partition("://")
    shared = Path(unquote(rest)) if scheme in ("file", "local") else None
    return Destination(local=_local(text), url=text, shared=shared)


def _local(url: str) -> Path:
    """A directory of this machine's that all ranks of a run that are on it arrive at by themselves."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    base = Path(tempfile.gettempdir()) / f"memguard-{user}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
        if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
            base = Path(tempfile.mkdtemp(prefix="memguard-"))  # somebody else's: nothing of ours goes there
    except OSError:  # the recording will say so: it cannot be written
        pass
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", shown(url).partition("://")[2])[-48:].strip("-.")
    return base / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


def _is_shared(path: Path, mounts: Path) -> bool:
    """Whether a path is on a file system that is asked over a network, as the kernel's list of mounts says."""
    try:
        listed = mounts.read_text(errors="replace").splitlines()
        real = Path(os.path.realpath(path))
    except (OSError, ValueError):  # another system: the path is taken for what most are
        return False
    kinds: dict[str, str] = {}
    for line in listed:
        place, _, kind = line.partition(" - ")
        fields = place.split(" ")
        if len(fields) > 4 and kind:
            kinds[re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])] = kind.split(" ")[0]
    return next((_is_of_network(kinds[str(each)]) for each in (real, *real.parents) if str(each) in kinds), False)


def _is_of_network(kind: str) -> bool:
    own = kind.removeprefix("fuse.")
    return kind in _SHARED or (own != kind and own.startswith(_SHARED_BY_FUSE))

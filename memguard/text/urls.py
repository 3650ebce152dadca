"""Directories that are URLs: recognised, checked, and shown without their passwords. No torch."""

from __future__ import annotations

import os
import re

_PASSWORD = re.compile(r"(?<=://)[^/@]*@")


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a directory is given as a URL (``s3://bucket/run``) rather than as a path."""
    return "://" in os.fspath(place)


def shown(url: str) -> str:
    """A URL as it may be printed and recorded: without user name, password and query."""
    return _PASSWORD.sub("", url).partition("?")[0]


def join(url: str, *names: str) -> str:
    """A URL of something below a directory's."""
    return "/".join([url.rstrip("/"), *names])


def check_url(url: str) -> None:
    """Whether fsspec reaches what a URL names, as far as is known without asking for it.

    Raises:
        ValueError: No file system of fsspec has that scheme, or the package that it needs is missing.
    """
    scheme = url.partition("://")[0].rpartition("::")[2]
    try:
        from fsspec.registry import get_filesystem_class, known_implementations, registry
    except ImportError:
        raise ValueError(f"{shown(url)!r} needs fsspec: pip install fsspec") from None
    if scheme not in {*registry, *known_implementations}:
        raise ValueError(
            f"{shown(url)!r} has the scheme {scheme!r}, which fsspec does not know; it knows s3, gs, abfs, file, "
            "memory and more (fsspec.available_protocols())"
        )
    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        needed = known_implementations.get(scheme, {}).get("err") or str(error)
        raise ValueError(f"{shown(url)!r} cannot be reached from here: {needed}") from None

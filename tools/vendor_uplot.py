"""Vendors uPlot: makes the ES module that the page imports from the package's own files, and checks their hashes.

Get the package's archive with npm (``npm pack uplot@1.6.32``), then::

    python tools/vendor_uplot.py uplot-1.6.32.tgz
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "memguard" / "tensorboard_plugin" / "static" / "vendor"
ORIGINALS = {
    "package/dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "package/dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "package/LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
EXPORT = b"\nexport default uPlot;\n"


def vendor(archive: str) -> None:
    """Writes the three vendored files; refuses an archive with other contents."""
    with tarfile.open(archive) as package:
        files = {name: package.extractfile(name).read() for name in ORIGINALS}
    for name, digest in ORIGINALS.items():
        found = hashlib.sha256(files[name]).hexdigest()
        if found != digest:
            sys.exit(f"{archive}: {name} has sha256 {found}, expected {digest}; is it uplot 1.6.32?")
    script, style, licence = files.values()
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "uPlot.esm.min.js").write_bytes(script.rstrip(b"\n") + EXPORT)
    (TARGET / "uPlot.min.css").write_bytes(style)
    (TARGET / "LICENSE").write_bytes(licence)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/vendor_uplot.py uplot-1.6.32.tgz")
    vendor(sys.argv[1])

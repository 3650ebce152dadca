"""Builds one shared library that answers for every CUDA library torch links to."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path(__file__).with_name("cuda")

CUDA_LIBRARY = re.compile(r"lib(cu|nccl|nvrtc|nvshmem)\w*\.so")
CUDA_SYMBOL = re.compile(r"_*(cu[A-Zbdfps]|nccl|nvrtc|nvshmem)")

LOADED_BY_NAME = {"libcuda.so.1", "libnvidia-ml.so.1"}
"""Libraries nobody links to, that torch and pynvml open themselves."""

RETURNS_HANDLE = re.compile(
    r"cublas\w*Create|cudnnCreate|nvrtcCreate|cuda(StreamCreate|GraphInst|Library(LoadData|GetKernel$))"
    r"|cudaDeviceGetDefaultMemPool|__cudaGetKernel|cudaGetSymbolAddress|cuModule(LoadData|Get)|cuCtxGet"
    r"|cuDevicePrimaryCtxR"
)
"""Functions whose first argument takes a fresh handle."""

UNSUPPORTED = (
    (re.compile(r"cu(sparse|solver|fft|File)|nvshmem|cudaIpc|cudaMallocManaged"), 1),
    (re.compile(r"nccl(MemAlloc|\w*Window|\w*DevComm)"), 1),
    (re.compile(r"cudnn(?!Create|Destroy)\w*(RNN|CTC|SpatialT|Find|Algorithm_v7)"), 3000),
)
"""Functions that answer with an error, since success would be a lie; 3000 is cuDNN's "not supported"."""

NEEDS_DRIVER = re.compile(r"cuda(?!Get(Last)?Error)|cu[A-Z](?!etError)")
"""Functions that fail in a fork of a process that had used CUDA; those that register kernels begin with `__cuda`."""

INITIALIZATION_ERROR = 3

VERSIONS = (
    ("CUDA", "cuda-toolkit", (1000, 10, 0)),
    ("CUDNN", "nvidia-cudnn", (10000, 100, 1)),
    ("NCCL", "nvidia-nccl", (10000, 100, 1)),
)
"""Macro, the requirement of torch that tells the version, and the weights that make it one number."""


def build(torch_files: Path, requirements: str, into: Path) -> int:
    """Compiles the library and gives it every name torch asks for.

    Args:
        torch_files: The folder of the installed torch package.
        requirements: The CUDA requirements of this torch, which tell the versions to report.
        into: Folder for the library.

    Returns:
        The number of generated functions.
    """
    flags = ["-O2", "-fPIC", "-w", *_version_flags(requirements)]
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        objects.append(into / f"{source.stem}.o")
        _run("gcc", *flags, "-c", source, "-o", objects[-1])
    written = set(re.findall(r" T (\w+)", _run("nm", *objects)))
    binaries = [*torch_files.glob("lib/*.so"), *torch_files.glob("_C*.so")]
    wanted = _imported_symbols(binaries)
    generated = sorted(set(wanted) - written)
    stubs, versions = into / "stubs.c", into / "versions.map"
    stubs.write_text("\n".join(["void *fresh_handle(void); int is_lost(void), fail(int);", *map(_stub, generated), ""]))
    versions.write_text(_version_script(wanted))
    library = into / "libnullgpu.so"
    linking = ("-shared", *objects, stubs, "-o", library, "-ldl", "-lpthread", f"-Wl,--version-script={versions}")
    _run("gcc", *flags, *linking)
    for name in _linked_libraries(binaries) | LOADED_BY_NAME:
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(library.name)
    return len(generated)


def _run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def _version_flags(requirements: str) -> list[str]:
    flags = []
    for macro, package, weights in VERSIONS:
        found = re.search(rf"{package}\S*==([\d.]+)", requirements)
        if found is None:
            raise RuntimeError(f"this torch does not require {package}; the null GPU knows builds for CUDA 13 only")
        number = sum(int(part) * weight for part, weight in zip(found[1].split("."), weights, strict=False))
        flags.append(f"-D{macro}_VERSION={number}")
    return flags


def _imported_symbols(binaries: Iterable[Path]) -> dict[str, str]:
    """Every CUDA function the binaries import, with its symbol version."""
    wanted: dict[str, str] = {}
    for binary in binaries:
        imports = re.findall(r" U (\w+)(?:@(\S+))?", _run("nm", "-D", "--with-symbol-versions", binary))
        wanted.update((name, version) for name, version in imports if CUDA_SYMBOL.match(name))
    return wanted


def _linked_libraries(binaries: Iterable[Path]) -> set[str]:
    needed = {name for binary in binaries for name in re.findall(r"NEEDED.*\[(.+)\]", _run("readelf", "-d", binary))}
    return {name for name in needed if CUDA_LIBRARY.match(name)}


def _stub(name: str) -> str:
    lost = f"if (is_lost()) return fail({INITIALIZATION_ERROR}); " if NEEDS_DRIVER.match(name) else ""
    if RETURNS_HANDLE.match(name):
        return f"int {name}(void **handle) {{ {lost}*handle = fresh_handle(); return 0; }}"
    return f"int {name}() {{ {lost}return {next((error for names, error in UNSUPPORTED if names.match(name)), 0)}; }}"


def _version_script(wanted: dict[str, str]) -> str:
    by_version = defaultdict(list)
    for name, version in wanted.items():
        by_version[version].append(name)
    return "".join(f"{version} {{ {'; '.join(by_version[version])}; }};\n" for version in sorted(by_version) if version)

"""``memguard forecast``: will this training step fit that GPU? Traced here, without one."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from memguard.commands.output import tell, tell_data, writable
from memguard.commands.parsers import add_parser
from memguard.errors import MemGuardError


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "forecast",
        "will a training step fit a GPU?",
        "Runs a training step on fake tensors and replays its allocations: what it needs, where it fits.",
        "memguard forecast train.py:make --device 24GiB",
        "memguard forecast train.py:make --device nvidia-h200 --batch 32     the largest batch that fits",
        "memguard forecast train.py:make --batch 32 --cards t4,l4,h100      batch sizes by cards, the largest of each",
        "memguard forecast train.py:make --device t4 --fail-if-not-fit        exit code 1 if it does not fit",
        "memguard forecast train.py:make --measure --batch 32 --cards l4,t4   from real steps on this machine's GPU",
        "memguard forecast train.py:make --nproc 8 --device h100              the ranks of a training on eight GPUs",
        "memguard forecast train.py:make --nproc 8 --mesh dp=8,tp=1 --mesh dp=4,tp=2      compares layouts",
    )
    parser.add_argument(
        "target",
        metavar="FILE.py:FUNCTION",
        help="a function without arguments that returns (model, optimizer, step), or a LightningModule",
    )
    parser.add_argument(
        "--device",
        help="a size like 24GiB (24GB is the same) or a card like nvidia-h200 (default: this machine's GPU, if any)",
    )
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="training steps to trace (default: 3)")
    parser.add_argument("--batch", type=int, metavar="N", help="the step's batch size; asks for the largest that fits")
    parser.add_argument(
        "--nproc", type=int, metavar="N", help="processes on each node: runs the function as each rank that differs"
    )
    parser.add_argument("--nnodes", type=int, default=1, metavar="N", help="nodes (default: 1)")
    parser.add_argument(
        "--mesh",
        action="append",
        default=[],
        metavar="NAME=N,...",
        help="sizes of the code's device mesh, like dp=4,tp=2; several times: compares these layouts",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="run the steps for real on this machine's GPU, and answer from what they allocated",
    )
    parser.add_argument("--suggest", action="store_true", help="re-forecast what would make it fit")
    parser.add_argument("--cards", help="also judge these cards, with commas; or all")
    parser.add_argument(
        "--torch-version", metavar="VERSION", help="the PyTorch that will run it (default: the one installed)"
    )
    parser.add_argument(
        "--alloc-conf", metavar="CONF", help="PYTORCH_CUDA_ALLOC_CONF of that run (default: the environment's)"
    )
    parser.add_argument("--others", metavar="SIZE", help="what other processes hold on the GPU, like 2GiB")
    parser.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML page with the plot")
    parser.add_argument("--svg", metavar="FILE", help="write the plot as an image, for a slide or a page")
    parser.add_argument(
        "--fail-if-not-fit", action="store_true", help="exit with 1 unless the step fits the device without retries"
    )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Forecasts; returns 1 if it was asked to fail and the step does not fit, else 0."""
    from memguard.forecast.from_file import forecast_target
    from memguard.forecast.layouts import parse_layout
    from memguard.text.units import parse_bytes

    page, image = writable(given.html), writable(given.svg)
    found = forecast_target(
        given.target,
        device=given.device,
        steps=given.steps,
        batch=given.batch,
        suggest=True if given.suggest else None,
        cards=given.cards.split(",") if given.cards else (),
        torch_version=given.torch_version,
        alloc_conf=given.alloc_conf,
        reserved_by_others_bytes=parse_bytes(given.others) if given.others else 0,
        nproc=given.nproc,
        nnodes=given.nnodes,
        meshes=[parse_layout(text) for text in given.mesh],
        measure=given.measure,
        progress=sys.stderr.isatty(),
    )
    if page is not None:
        from memguard.report.forecast_html import write_forecast_html

        write_forecast_html(found, page)
        print(f"memguard: wrote {given.html}", file=sys.stderr)
    if image is not None:
        from memguard.report.forecast_svg import write_forecast_svg

        write_forecast_svg(found, image)
        print(f"memguard: wrote {given.svg}", file=sys.stderr)
    if given.json:
        tell_data(json.dumps(found.to_json(), indent=2))
    else:
        tell(str(found))
    if given.fail_if_not_fit and found.verdict is None:
        raise MemGuardError("--fail-if-not-fit needs a GPU to judge by; name one, like --device 24GiB")
    return int(given.fail_if_not_fit and not found.fits)

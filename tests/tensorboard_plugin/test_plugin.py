from __future__ import annotations

import itertools
import json
import struct
import subprocess
import sys
import tarfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client

from memguard.recording.reader import Recording, find_recordings
from memguard.recording.writer import RecordingWriter
from memguard.records.stats import BatchRecord, Stage
from memguard.text.units import GIB
from tests.tensorboard_plugin.make_logdir import CODE, SCRIPT, leak_finding, main, make_leak, make_snapshot, session
from tests.tensorboard_plugin.serving import Server


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, made once."""
    folder = tmp_path_factory.mktemp("demo")
    main(folder)
    return folder


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head and the columns of a /series answer."""
    (length,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + length])
    values = np.frombuffer(data[4 + length :], dtype="<f8").reshape(len(head["columns"]), head["rows"])
    return head, dict(zip(head["columns"], values, strict=True))


def test_runs_lists_every_run_and_rank_with_its_peak(logdir: Path) -> None:
    """Peaks, capacities and findings of the list are the recordings'."""
    runs = {run["name"]: run["ranks"] for run in Server(logdir).json("/runs")["runs"]}
    assert list(runs) == ["four-ranks", "leak", "long"]
    assert [rank["rank"] for rank in runs["four-ranks"]] == [0, 1, 2, 3]
    recording = Recording.open(find_recordings(logdir / "leak")[0])
    (leak,) = runs["leak"]
    assert leak["peak"]["allocated_peak_bytes"] == int(recording.rows["allocated_peak_bytes"].max())
    assert leak["device_total_bytes"] == 24 * GIB
    assert leak["findings"] == {"critical": 1, "warning": 1, "info": 1}
    assert leak["ooms"] == 1


def test_series_gives_the_recordings_own_numbers(logdir: Path) -> None:
    """Every value of a window equals the file's; unknown is NaN."""
    head, columns = unpacked(Server(logdir).get("/series", run="leak", px=1500).data)
    rows = Recording.open(find_recordings(logdir / "leak")[0])
    assert head["rows"] == head["total"] == len(rows)
    for name in ("batch", "allocated_peak_bytes", "allocated_start_bytes", "shapes"):
        np.testing.assert_array_equal(columns[name], rows.column(name))
    assert np.isnan(columns["shapes"]).any()
    assert [head["stages"][code] for _, _, code in head["bands"]] == [
        "validation",
        "checkpoint",
        "validation",
        "checkpoint",
    ]
    assert head["marks"]["num_ooms"] == [int(rows.rows["batch"][-1])]


def test_details_tell_first_and_last_batch_of_each_cause(logdir: Path) -> None:
    """Findings come once per cause, most severe first, with the batches of the first and the last state."""
    findings = Server(logdir).json("/details", run="leak")["findings"]
    assert [finding["code"] for finding in findings] == ["MG101", "MG201", "MG504"]
    assert findings[0]["first_batch"] == 632
    assert findings[0]["last_batch"] > 1100
    assert [finding["since"] for finding in findings] == [620, None, None]


def test_a_finding_comes_with_its_code(logdir: Path) -> None:
    """Where the recording has it; a recording of a version that kept none opens as well."""
    found = {each["code"]: each["code_lines"] for each in Server(logdir).json("/details", run="leak")["findings"]}
    assert found == {"MG101": {"first": 39, "lines": CODE}, "MG201": None, "MG504": None}


@pytest.mark.parametrize(
    "code",
    [
        {"file": SCRIPT, "line": 41, "first": 39, "lines": ["x", 7]},
        {"file": SCRIPT, "line": 41, "first": "39", "lines": ["x"]},
        {"file": SCRIPT, "line": 41, "first": 39, "lines": "x"},
        {"file": [SCRIPT], "line": 41, "first": 39, "lines": ["x"]},
    ],
)
def test_code_that_memguard_would_not_write_is_left_out(tmp_path: Path, code: dict[str, Any]) -> None:
    """A stranger's recording: the finding stands, without its code."""
    writer = RecordingWriter(tmp_path / "run", session())
    writer.line("finding", leak_finding(7, GIB).to_json())
    writer.line("code", code)
    writer.close()
    (found,) = Server(tmp_path).json("/details", run="run")["findings"]
    assert (found["code"], found["code_lines"]) == ("MG101", None)


def test_details_are_sent_only_when_something_changed(logdir: Path) -> None:
    """The version of the last answer is answered with a word."""
    server = Server(logdir)
    version = server.json("/details", run="leak")["version"]
    assert server.json("/details", run="leak", version=version) == {"version": version, "same": True}


def test_owners_are_those_of_the_nearest_recorded_batch(logdir: Path) -> None:
    """Owners of a batch in between come from the nearest one, and say so."""
    owners = Server(logdir).json("/owners", run="leak", batch=712)["owners"]
    assert owners["batch"] == 700
    assert owners["parameters_bytes"] == 1331 * 2**20


def test_ranks_name_the_worst(logdir: Path) -> None:
    """The band over ranks goes from the lowest to the highest rank, and says which one that was."""
    band = Server(logdir).json("/ranks", run="four-ranks", px=100)
    assert len(band["batch"]) == 100
    assert all(high >= low for high, low in zip(band["high"], band["low"], strict=True))
    assert set(band["worst"][40:]) == {2}
    assert all(
        low <= middle <= high for low, middle, high in zip(band["low"], band["median"], band["high"], strict=True)
    )
    assert all(before < after for before, after in itertools.pairwise(band["batch"]))


def test_a_rank_that_stopped_because_of_another_says_so(tmp_path: Path) -> None:
    """The list of ranks has whom each saw fall; a line that names none is passed over."""
    writer = RecordingWriter(tmp_path, session())
    writer.line("peer", {"rank": 2, "what": "out of memory"})
    writer.line("peer", {"rank": "nobody"})
    writer.close()
    assert Server(tmp_path).json("/runs")["runs"][0]["ranks"][0]["peers"] == [2]


def test_the_worst_rank_is_explained(logdir: Path) -> None:
    """Which it is, when, how far above the others, and why as far as the recordings show it."""
    worst = Server(logdir).json("/worst", run="four-ranks")["worst"]
    assert (worst["rank"], worst["lowest_rank"] != 2) == (2, True)
    assert 53 * GIB < worst["peak_bytes"] < 57 * GIB and worst["median_bytes"] < 48 * GIB
    assert worst["finding"] is None, "less than 1.2 times the lowest is no MG603"
    assert Server(logdir).json("/worst", run="leak")["worst"] is None


def test_a_running_recording_grows_in_the_tab(tmp_path: Path) -> None:
    """Batches that are appended after the first look show up at the next."""
    writer = RecordingWriter(tmp_path, session())
    server = Server(tmp_path)
    assert server.json("/runs")["runs"][0]["ranks"][0]["count"] == 0
    writer.record(BatchRecord(batch=0, stage=Stage.TRAIN, time=1.0, seconds=0.1, allocated_peak_bytes=GIB))
    assert server.json("/details", run=".")["peak"]["allocated_peak_bytes"] == GIB
    writer.line("finding", {"code": "MG101", "name": "n", "severity": "warning", "message": "m", "advice": "a"})
    assert len(server.json("/details", run=".")["findings"]) == 1
    writer.close()


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("/series", {"run": "leak", "x0": "abc"}),
        ("/series", {"run": "leak", "x0": "nan"}),
        ("/series", {"run": "leak", "x0": "9", "x1": "3"}),
        ("/series", {"run": "leak", "px": "-1"}),
        ("/series", {"run": "leak", "rank": "1e9"}),
        ("/series", {"run": "leak", "rank": "99999999999999999999"}),
        ("/series", {"run": "../leak"}),
        ("/details", {}),
        ("/details", {"run": "leak", "start": "7"}),
        ("/ranks", {"run": "nobody"}),
        ("/worst", {"run": "nobody"}),
        ("/owners", {"run": "leak", "batch": "x"}),
        ("/snapshot", {"run": "leak", "id": "../../x"}),
        ("/download", {"run": "leak", "id": "x\0y"}),
    ],
)
def test_bad_requests_get_400_and_one_line(logdir: Path, route: str, query: dict[str, str]) -> None:
    """What the page would never ask for is refused with words, not with a traceback."""
    answer = Server(logdir).get(route, **query)
    assert answer.status_code == 400
    assert "\n" not in answer.json["error"]


def test_static_files_stay_in_their_folder(logdir: Path) -> None:
    """The page's files have fixed types; nothing else can be read."""
    server = Server(logdir)
    client = Client(server.apps["/static/*"])
    assert client.get("/static/index.js").mimetype == "text/javascript"
    assert client.get("/static/app.css").mimetype == "text/css"
    for path in ("/static/../plugin.py", "/static/..%2fplugin.py", "/static//etc/passwd", "/static/", "/static/x.js"):
        assert client.get(path).status_code == 404


def test_snapshot_of_a_post_mortem_is_shown_and_downloaded(logdir: Path) -> None:
    """The map's blocks add up to its segments; the download is the file."""
    server = Server(logdir)
    (oom,) = server.json("/details", run="leak")["ooms"]
    drawn = server.json("/snapshot", run="leak", id=oom["id"])
    for segment in drawn["segments"]:
        assert sum(segment["blocks"][0::4]) == segment["size"]
    assert sum(line[3] for line in drawn["lines"]) == drawn["totals"]["allocated_bytes"]
    stored = next((logdir / "leak").rglob("snapshot.pickle")).read_bytes()
    assert server.get("/download", run="leak", id=oom["id"]).data == stored


def test_dropped_file_that_runs_code_is_refused(logdir: Path) -> None:
    """A pickle that asks for a global gets 400 and is never unpickled; so does junk."""
    client = Client(Server(logdir).apps["/snapshot"])
    for data in (b"cos\nsystem\n(S'true'\ntR.", b"junk", b""):
        assert client.post("/snapshot", data=data).status_code == 400


def test_snapshot_outside_the_run_is_never_read(tmp_path: Path) -> None:
    """A recording that names a file elsewhere, also through a link, gets nothing."""
    secret = tmp_path / "secret"
    make_snapshot(secret)
    writer = RecordingWriter(tmp_path / "run", session())
    (writer.path.parent / "link.pickle").symlink_to(secret / "snapshot.pickle")
    names = ["../../secret/snapshot.pickle", str(secret / "snapshot.pickle"), "link.pickle", "x\0y", "a" * 5000]
    for number, name in enumerate(names):
        writer.line("oom", {"id": f"oom-{number}", "batch": 1, "snapshot": name})
    writer.close()
    server = Server(tmp_path)
    for number in range(len(names)):
        assert server.get("/snapshot", run="run", id=f"oom-{number}").status_code == 400
        assert server.get("/download", run="run", id=f"oom-{number}").status_code == 400


def test_broken_recordings_are_read_up_to_the_break(tmp_path: Path) -> None:
    """Torn, empty, foreign and hostile files neither stop the tab nor hide the others."""
    make_leak(tmp_path / "good").close()
    (path,) = find_recordings(tmp_path / "good")
    for name, data, lines in (
        ("torn", path.read_bytes()[:-77], path.with_suffix(".jsonl").read_bytes()[:-40]),
        ("empty", b"", b""),
        ("foreign", b"PK\x03\x04" * 2000, b"\xff\xfe"),
        ("header", path.read_bytes()[:50], b"{}\n"),
        ("deep", path.read_bytes(), b'{"kind":"oom","batch":1,"x":' + b"[" * 900 + b"]" * 900 + b"}\n"),
        ("nan", path.read_bytes(), b'{"kind":"oom","batch":NaN,"requested_bytes":1e999}\n[]\n'),
        (
            "types",
            path.read_bytes(),
            b'{"kind":"finding","code":[],"severity":"info"}\n{"kind":"session","device":{}}\n',
        ),
    ):
        folder = tmp_path / name / "memguard"
        folder.mkdir(parents=True)
        (folder / path.name).write_bytes(data)
        (folder / path.with_suffix(".jsonl").name).write_bytes(lines)
    server = Server(tmp_path)
    runs = {run["name"]: run["ranks"][0] for run in server.json("/runs")["runs"]}
    assert len(runs) == 8
    assert "not a memguard recording" in runs["foreign"]["problem"]
    assert runs["torn"]["count"] == runs["good"]["count"] - 1
    for name in ("good", "torn", "deep", "nan", "types"):
        server.json("/details", run=name)
    for name in ("empty", "foreign", "header"):
        assert server.get("/details", run=name).status_code == 400
        assert server.get("/series", run=name).status_code == 400
    assert "line 2 is broken" in server.json("/details", run="nan")["notes"][0]


def test_an_empty_logdir_keeps_the_tab_inactive(tmp_path: Path) -> None:
    """Without a recording the tab is off and the list is empty."""
    server = Server(tmp_path)
    assert not server.plugin.is_active()
    assert server.json("/runs")["runs"] == []


def test_hostile_run_names_are_plain_names(tmp_path: Path) -> None:
    """Directories with markup, quotes, unicode and great length are runs like others."""
    names = ["<img src=x onerror=alert(1)>", "a&b=c?d#e", "Ünïcode 🚀", "x" * 200, "'\"`${1}"]
    for name in names:
        RecordingWriter(tmp_path / name, session()).close()
    server = Server(tmp_path)
    assert {run["name"] for run in server.json("/runs")["runs"]} == set(names)
    for name in names:
        assert server.json("/details", run=name)["count"] == 0


def test_runs_are_named_as_tensorboard_names_them_under_logdir_spec(tmp_path: Path) -> None:
    """--logdir_spec a:/x,/y gives the runs a/... and, unnamed, their own relative paths."""
    RecordingWriter(tmp_path / "x", session()).close()
    RecordingWriter(tmp_path / "y" / "run", session()).close()
    server = Server("", f"a:{tmp_path / 'x'},{tmp_path / 'y'}")
    assert [run["name"] for run in server.json("/runs")["runs"]] == ["a/.", "run"]


def test_remote_logdirs_are_read_through_gfile(tmp_path: Path) -> None:
    """A logdir with a scheme is walked and followed through TensorBoard's file systems, growing too."""
    pytest.importorskip("fsspec")
    writer = RecordingWriter(tmp_path / "run", session())
    record = BatchRecord(batch=0, stage=Stage.TRAIN, time=1.0, seconds=0.1, allocated_peak_bytes=GIB)
    writer.record(record)
    server = Server(f"file://{tmp_path}")
    assert server.json("/runs")["runs"][0]["ranks"][0]["count"] == 1
    writer.record(record)
    writer.line("oom", {"batch": 0})
    writer.close()
    details = server.json("/details", run="run")
    assert (details["count"], len(details["ooms"])) == (2, 1)


def test_the_plugin_imports_no_torch() -> None:
    """Loader and plugin work where torch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['lightning'] = None\n"
        "from memguard.tensorboard_plugin.loader import Loader\n"
        "import memguard.tensorboard_plugin.plugin, memguard.report.html"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_loader_survives_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that cannot be made is left out; TensorBoard starts."""
    from memguard.tensorboard_plugin.loader import Loader

    assert Loader().load(Namespace()) is None
    flags = Namespace(samples_per_plugin={"memguard": 7})
    Loader().fix_flags(flags)
    assert flags.samples_per_plugin == {"memguard": 7}
    Loader().fix_flags(Namespace())


def test_vendored_files_are_the_published_ones(tmp_path: Path) -> None:
    """The vendored files carry the hashes of the release, apart from the line that makes it a module."""
    import hashlib

    from tools import vendor_uplot as vendor

    folder = vendor.TARGET
    script = (folder / "uPlot.esm.min.js").read_bytes()
    assert script.endswith(vendor.EXPORT)
    digests = [
        hashlib.sha256(script.removesuffix(vendor.EXPORT) + b"\n").hexdigest(),
        hashlib.sha256((folder / "uPlot.min.css").read_bytes()).hexdigest(),
        hashlib.sha256((folder / "LICENSE").read_bytes()).hexdigest(),
    ]
    assert digests == list(vendor.ORIGINALS.values())
    forged = tmp_path / "forged.tgz"
    with tarfile.open(forged, "w:gz") as package:
        for name in vendor.ORIGINALS:
            package.add(folder / "LICENSE", name)
    with pytest.raises(SystemExit, match="sha256"):
        vendor.vendor(str(forged))


def test_further_devices_of_a_process_are_shown_by_themselves(tmp_path: Path) -> None:
    """They are no starts and no ranks: each has its own curves, under its rank and the number of the device."""
    for lane, peak in ((0, GIB), (1, 3 * GIB)):
        told = {"rank": 0, "device": f"cuda:{lane}", "device_total_bytes": 24 * GIB, "lane": lane}
        writer = RecordingWriter(tmp_path, told)
        for batch in range(5):
            record = {"allocated_start_bytes": GIB, "allocated_peak_bytes": peak}
            writer.record(BatchRecord(batch=batch, stage=Stage.TRAIN, time=1.0, seconds=0.1, **record))
        writer.close()
    server = Server(tmp_path)
    (rank,) = server.json("/runs")["runs"][0]["ranks"]
    assert (len(rank["starts"]), rank["device"], rank["peak"]["allocated_peak_bytes"]) == (1, "cuda:0", GIB)
    assert [(each["number"], each["device"]) for each in rank["devices"]] == [(1, "cuda:1")]
    assert server.json("/details", run=".", device=1)["peak"]["allocated_peak_bytes"] == 3 * GIB
    assert server.get("/details", run=".", device=2).status_code == 400
    assert server.json("/worst", run=".")["worst"] is None

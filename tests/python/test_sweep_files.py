"""Files of sweeps: those that runs depend on, those that are damaged or cannot be written, and those of the user."""

from __future__ import annotations

import os
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import Cli, tree
from pathloom.experiments.results.parquet import parquet_writer
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.store import locked_store
from pathloom.experiments.settings.input_files import named_files
from sweeping import COMMAND, SCHEME, TOML, content, in_new_process, stamps

pytestmark = pytest.mark.usefixtures("sweep_file", "undrawn")


@pytest.mark.parametrize("left", [b"", b"\0" * 4096])
def test_a_result_that_a_power_failure_emptied_is_made_again(cli: Cli, tmp_path: Path, left: bytes) -> None:
    cli("sweep", "s.toml", "--out", "out")
    first = content(tmp_path / "out")
    (tmp_path / "out/result.json").write_bytes(left)
    (tmp_path / "out/runs" / min(stamps(tmp_path / "out"))).write_bytes(left)
    again = cli("sweep", "s.toml", "--out", "out")
    assert again.code == 0, again.err
    assert "15 of 16 runs are in out already" in again.err
    assert content(tmp_path / "out") == first


def test_runs_count_only_while_their_files_are_unchanged(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("size_bytes,cdf\n1000,0.5\n20000,1\n", encoding="utf-8")
    (tmp_path / "own.py").write_text(SCHEME, encoding="utf-8")
    (tmp_path / "helper.py").write_text("PATH = 0\n", encoding="utf-8")
    text = TOML.replace("hadoop:", "sizes.csv:").replace('"spt"', '"own.py:Own"')
    sweep_file.write_text(text, encoding="utf-8")
    first = cli("sweep", "s.toml", "--out", "out")
    assert first.code == 0, first.err
    assert "already" not in first.err
    again = "16 of 16 runs are in out already"
    assert again in cli("sweep", "s.toml", "--out", "out").err
    (tmp_path / "helper.py").write_text("PATH = -1\n", encoding="utf-8")
    assert "8 of 16 runs" in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr
    sizes.write_text("size_bytes,cdf\n1000,0.4\n20000,1\n", encoding="utf-8")
    changed = in_new_process(tmp_path, "sweep", "s.toml", "--out", "out")
    assert "already" not in changed.stderr, "runs that read the old file must not count"


def test_a_run_depends_on_files_of_any_name_and_on_packages_of_a_scheme(
    cli: Cli, tmp_path: Path, sweep_file: Path
) -> None:
    flows = "start_s,src,dst,size_bytes\n0,h0,h1,{size}\n"
    (tmp_path / "trace=of:today").write_text(flows.format(size=10_000), encoding="utf-8")
    (tmp_path / "own.py").write_text(SCHEME.replace("from helper import", "from tools.paths import"), encoding="utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "tools/paths.py").write_text("PATH = 0\n", encoding="utf-8")
    text = TOML.replace('"hadoop:load={load}"', '"flows:file=trace=of:today"').replace('"spt"', '"own.py:Own"')
    sweep_file.write_text(text.replace("load = [0.3, 0.6]\n", ""), encoding="utf-8")
    first = cli("sweep", "s.toml", "--out", "out")
    assert first.code == 0, first.err
    files = content(tmp_path / "out")["settings"]["files"]
    assert sorted(files) == ["own.py", "tools/__init__.py", "tools/paths.py", "trace=of:today"]
    assert "8 of 8 runs" in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr
    (tmp_path / "tools/paths.py").write_text("PATH = -1\n", encoding="utf-8")
    assert "4 of 8 runs" in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr
    (tmp_path / "trace=of:today").write_text(flows.format(size=30_000), encoding="utf-8")
    assert "already" not in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr


def test_a_run_depends_on_modules_that_only_a_method_imports(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    late = "            from late import deep\n            from json import dumps\n            flow = view.flow"
    text = SCHEME.replace("from helper import PATH\n", "").replace("            flow = view.flow", late)
    files = {
        "own.py": text.replace("[PATH]", "[deep.PATH]"),
        "late/deep.py": "from .last import PATH\n",
        "late/last.py": "PATH = 0\n",
        # Python finds its own module of this name first.
        "json.py": "",
    }
    (tmp_path / "mine/late").mkdir(parents=True)
    for name, content_of in files.items():
        (tmp_path / "mine" / name).write_text(content_of, encoding="utf-8")
    sweep_file.write_text(TOML.replace('"spt"', '"mine/own.py:Own"'), encoding="utf-8")
    first = cli("sweep", "s.toml", "--out", "out")
    assert first.code == 0, first.err
    named = sorted(content(tmp_path / "out")["settings"]["files"])
    assert named == ["mine/late/deep.py", "mine/late/last.py", "mine/own.py"]
    (tmp_path / "mine/late/last.py").write_text("PATH = -1\n", encoding="utf-8")
    assert "8 of 16 runs" in in_new_process(tmp_path, "sweep", "s.toml", "--out", "out").stderr


def test_a_run_depends_on_the_names_of_modules(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    either = "try:\n    from plug_a import PATH\nexcept ImportError:\n    from plug_b import PATH\n    PATH -= 1\n"
    (tmp_path / "own.py").write_text(SCHEME.replace("from helper import PATH\n", either), encoding="utf-8")
    (tmp_path / "plug_a.py").write_text("PATH = 0\n", encoding="utf-8")
    sweep_file.write_text(TOML.replace('"spt"', '"own.py:Own"'), encoding="utf-8")
    first = cli("sweep", "s.toml", "--out", "out")
    assert first.code == 0, first.err
    (tmp_path / "plug_a.py").rename(tmp_path / "plug_b.py")
    assert "8 of 16 runs" in cli("sweep", "s.toml", "--out", "out").err


def test_files_are_found_whatever_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("topo=1.json", "to:po.json", "my=a.py", "trace", "a=b", "ecmp"):
        Path(name).write_text("", encoding="utf-8")
    assert named_files(["topo=1.json:hosts=2"]) == ["topo=1.json"]
    assert named_files(["to:po.json:hosts=2,rate=1Gbps"]) == ["to:po.json"]
    assert named_files(["my=a.py:A:x=1"]) == ["my=a.py"]
    assert named_files(["flows:file=trace,jitter=0s", "flows:file=a=b"]) == ["trace", "a=b"]
    assert named_files(["ecmp", "long-lived", "fat-tree:k=4"]) == [], "the name of a scheme is no file"


@pytest.mark.parametrize(
    "text",
    [
        "0.0,h0,h1,100000\n",
        "start,source,destination,size\n0,h0,h1,100000\n",
        "start_s, src, dst, size_bytes\n0, h0, h1, 9\n",
    ],
)
def test_every_form_of_a_file_of_flows_can_be_swept(cli: Cli, sweep_file: Path, text: str) -> None:
    Path("f.csv").write_text(text, encoding="utf-8")
    changed = TOML.replace("hadoop:load={load}", "flows:file=f.csv").replace("load = [0.3, 0.6]\n", "")
    sweep_file.write_text(changed, encoding="utf-8")
    outcome = cli("sweep", "s.toml", "--out", "out")
    assert outcome.code == 0, outcome.err


def test_a_run_depends_on_every_file_that_can_change_its_figures() -> None:
    from pathloom.experiments.settings import fitting_min_rto, identity

    assert identity.program_digest.__wrapped__() == identity.program_digest()
    with pytest.MonkeyPatch.context() as patch:
        # As if this file of another version was installed.
        real = identity.digest
        patch.setattr(identity, "digest", lambda path: "other" if path == fitting_min_rto.__file__ else real(path))
        assert identity.program_digest.__wrapped__() != identity.program_digest()


def test_pictures_of_the_user_stay_and_old_plots_go(cli: Cli, tmp_path: Path, sweep_file: Path) -> None:
    (tmp_path / "out").mkdir()
    own = ["our-figure-by-load.pdf", "speed-by-hand.svg"]
    for name in own:
        (tmp_path / "out" / name).write_text("mine", encoding="utf-8")
    assert cli("sweep", "s.toml", "--out", "out", "--plots", "svg,png").code == 0
    assert {"fct-by-load.png", "fct-by-rate.svg", *own} <= set(tree(tmp_path / "out"))
    sweep_file.write_text(TOML.replace('rate = ["10Mbps", "20Mbps"]', 'rate = ["10Mbps"]'), encoding="utf-8")
    assert cli("sweep", "s.toml", "--out", "out", "--resume").code == 0
    left = tree(tmp_path / "out")
    assert {"fct-by-load.svg", *own} <= set(left)
    assert "fct-by-load.png" not in left and "fct-by-rate.svg" not in left


def test_a_damaged_run_is_carried_out_again(cli: Cli, tmp_path: Path) -> None:
    assert cli("sweep", "s.toml", "--out", "out").code == 0
    first = content(tmp_path / "out")
    damaged = min((tmp_path / "out/runs").glob("*.npz"))
    whole = damaged.read_bytes()
    with locked_store(tmp_path / "out") as store:
        original = store.find(damaged.stem)
        assert original is not None
        refused = 0
        for place, bit in product([20, 300, -300, -40], range(8)):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            damaged.write_bytes(changed)
            found = store.find(damaged.stem)
            refused += found is None
            if found is not None:
                # The bit belongs to what nobody reads, such as a time in a header of the archive.
                same(found.outcome, original.outcome)
        assert refused >= 8, "every bit of the first array counts"
        for length in (0, 1, 300, len(whole) - 1):
            damaged.write_bytes(whole[:length])
            assert store.find(damaged.stem) is None, length
    outcome = cli("sweep", "s.toml", "--out", "out")
    assert outcome.code == 0, outcome.err
    assert "15 of 16 runs are in out already" in outcome.err
    assert content(tmp_path / "out") == first


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"flow": np.arange(100_000)})
    with pytest.raises(OSError, match="No space left on device"):
        parquet_writer(frame)(Path("/dev/full"))
    arguments = ["run", "--fabric", "diamond", "--traffic", "long-lived", "--scheme", "ecmp", "--duration", "10ms"]
    for more in ([], ["--json", "-"]):
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            command = [*COMMAND, *arguments, *more]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        said = "pathloom: cannot write the output: no space left on device\n"
        assert (done.returncode, done.stderr) == (1, said), more


def test_a_stored_run_equals_the_original(tmp_path: Path) -> None:
    from pathloom.experiments.running.simulation import RunFiles
    from pathloom.experiments.settings.model import Settings

    values = {
        "fabric": "fat-tree:k=4,rate=10Mbps",
        "traffic": "hadoop:load=0.4",
        "schemes": ("mptcp:subflows=3", "hedera"),
        "duration": "300ms",
        "runs": 1,
    }
    settings = Settings.of(values)
    (tmp_path / "out").mkdir()
    with locked_store(tmp_path / "out") as store:
        kept = Execution(settings, None, RunFiles(), store=store)
        kept.run(2)
    fresh = Execution(settings, None, RunFiles())
    fresh.run(2)
    assert fresh.outcomes[0].outcome["subflows"], "the case has every kind of table"
    for one, other in zip(kept.outcomes, fresh.outcomes, strict=True):
        assert one.job == other.job
        assert (one.description, one.notes, one.trouble, one.samples) == (
            other.description,
            other.notes,
            other.trouble,
            other.samples,
        )
        same(one.outcome, other.outcome)


def same(one: Any, other: Any) -> None:
    """Checks that two values are equal in every bit and type."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key, part in one.items():
            same(part, other[key])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    else:
        assert one == other


def test_a_run_that_read_a_file_while_it_changed_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathloom.experiments.running.simulation import RunFiles
    from pathloom.experiments.settings.model import Settings

    monkeypatch.chdir(tmp_path)
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("size_bytes,cdf\n1000,0.5\n20000,1\n", encoding="utf-8")
    values = {"fabric": "diamond", "traffic": "sizes.csv:load=0.3", "schemes": ("ecmp",), "duration": "50ms", "runs": 2}
    (tmp_path / "out").mkdir()
    with locked_store(tmp_path / "out") as store:
        execution = Execution(Settings.of(values), None, RunFiles(), store=store)
        sizes.write_text("size_bytes,cdf\n1000,0.4\n20000,1\n", encoding="utf-8")
        os.utime(sizes, ns=(1, 1))
        execution.run(1)
        assert len(execution.outcomes) == 2
        assert stamps(tmp_path / "out") == {}

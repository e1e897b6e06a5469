"""The figures of a result, and how a result is saved."""

from __future__ import annotations

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import synthetic
from conftest import Cli
from pathloom._core import PathloomError
from pathloom.api.comparison import compare
from pathloom.api.results import FILES, Result
from pathloom.cli.compare import Outputs, deliver, print_result
from pathloom.errors import ToolError
from pathloom.experiments.results.output_files import (
    PLOT_KINDS,
    OutFolder,
    check_writable,
    replace_files,
    write_atomically,
    write_text,
)
from pathloom.experiments.results.stats import ci95
from pathloom.experiments.results.summary import paired_differences
from pathloom.experiments.results.tables import FLOW_SCHEMA, LINK_SCHEMA
from pathloom.fabrics import Fabric, diamond, fat_tree
from pathloom.report.tables import NOTHING, control_table
from pathloom.show import sources
from pathloom.show.results import Results


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return fat_tree(k=4, rate="10Mbps")


def test_the_documented_keys_exist(fabric: Fabric) -> None:
    content = json.loads(synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}).json())
    assert {"schema", "settings", "versions", "seed", "schemes"} <= set(content)
    assert content["schema"] == 1
    promised: dict[str, set[str]] = {
        "throughput": {"mean", "min", "p5", "ci95"},
        "fct_s": {"mean", "p50", "p95", "p99", "mouse", "rabbit", "elephant"},
        "flows": {"started", "finished"},
        "reordering": {"segments", "reordered", "ratio"},
        "packets": {"sent", "dropped", "hops"},
        "control": {"messages", "rules_max", "routes", "reroutes", "busy_share"},
    }
    for row in content["schemes"]:
        assert {"scheme", "runs", "wall_s", "hops_per_wall_s", *promised} <= set(row)
        for key, names in promised.items():
            assert names <= set(row[key]), key
            assert all(isinstance(row[key][name], int | float) for name in names)
        assert [run["run"] for run in row["runs"]] == [1, 2, 3]
        assert row["reordering"]["ratio"] == row["runs"][0]["reordering"]["ratio"] == 0.25


def test_jains_index_measures_how_equal_flows_are(fabric: Fabric) -> None:
    result = synthetic.result(fabric, {"ecmp": 1.0}, runs=2)
    row = result.summary["schemes"][0]
    for run in row["runs"]:
        values = result.flows.filter(pl.col("run") == run["run"])["throughput"].to_list()
        squares = sum(value**2 for value in values)
        assert run["throughput"]["jain"] == pytest.approx(sum(values) ** 2 / (len(values) * squares))
    assert row["throughput"]["jain"] == pytest.approx(sum(run["throughput"]["jain"] for run in row["runs"]) / 2)
    cut = synthetic.result(fabric, {"ecmp": 1.0}, runs=1, unfinished=1).summary["schemes"][0]
    assert cut["throughput"]["jain"] is None, "the throughput of unfinished flows is unknown"
    uneven = synthetic.result(fabric, {"ecmp": 1.0}, runs=2)
    uneven.outcomes[1].outcome["flows"]["finish_ns"][-1] = -1
    row = uneven.summary["schemes"][0]
    assert [run["throughput"]["jain"] is None for run in row["runs"]] == [False, True]
    assert row["throughput"]["jain"] is None, "schemes are not compared by different runs"


def test_figures_of_switch_programs_are_shown_beside_rules(fabric: Fabric) -> None:
    result = synthetic.result(fabric, {"ecmp": 1.0, "tcp-path": 1.5}, runs=3)
    for one in result.outcomes:
        if one.job.scheme == "tcp-path":
            one.outcome["programs"] = {
                "entries_max": 100 * one.job.run,
                "entries_mean": 10.0 * one.job.run,
                "broadcast_share": None if one.job.run == 1 else 0.01 * one.job.run,
                "explorations": 30,
                "late_copies": 7,
                "entries": [(0.1, 5.0), (0.2, 15.0)],
            }
    ecmp, tcp_path = result.summary["schemes"]
    assert ecmp["programs"] is None and ecmp["runs"][0]["programs"] is None
    assert tcp_path["runs"][0]["programs"]["entries"] == [[0.1, 5.0], [0.2, 15.0]]
    assert tcp_path["programs"] == {
        "entries_max": 300,
        "entries_mean": pytest.approx(20.0),
        "broadcast_share": pytest.approx(0.025),
        "explorations": 90,
        "late_copies": 21,
    }
    table = control_table(result.summary["schemes"])
    cells = {heading: [row[place] for row in table.rows] for place, heading in enumerate(table.headings)}
    assert cells["most entries in a switch"] == [NOTHING, "300"]
    assert cells["explorations"] == [NOTHING, "30"]
    assert cells["broadcast share at ToRs"] == [NOTHING, "2.5 %"]
    without = control_table([ecmp])
    assert "explorations" not in without.headings


def test_summary_figures_follow_from_the_tables(fabric: Fabric) -> None:
    result = synthetic.result(fabric, {"ecmp": 1.0}, runs=4)
    row, flows = result.summary["schemes"][0], result.flows
    run_means = flows.group_by("run").agg(pl.col("throughput").mean()).sort("run")["throughput"].to_list()
    assert row["throughput"]["mean"] == pytest.approx(sum(run_means) / 4)
    assert row["throughput"]["ci95"] == pytest.approx(ci95(run_means))
    assert row["throughput"]["min"] == flows["throughput"].min()
    assert row["fct_s"]["p95"] == pytest.approx(flows["fct_s"].quantile(0.95, "linear"))
    mice = flows.filter(pl.col("size_bytes") < 10_000).group_by("run").agg(pl.col("fct_s").mean())["fct_s"]
    assert row["fct_s"]["mouse"] == pytest.approx(mice.mean())
    elephants = flows.filter(pl.col("size_bytes") > 10_000_000)
    assert set(elephants["size_class"]) == {"elephant"}
    assert row["flows"] == {"offered": 3600, "started": 3600, "finished": 3600, "unfinished": 0, "long_lived": 0}


def test_unfinished_flows_are_counted_named_and_never_left_out(fabric: Fabric) -> None:
    whole = synthetic.result(fabric, {"ecmp": 1.0}, runs=1)
    cut = synthetic.result(fabric, {"ecmp": 1.0}, runs=1, unfinished=20)
    row, complete = cut.summary["schemes"][0], whole.summary["schemes"][0]
    assert row["flows"]["unfinished"] == 20
    assert row["flows"]["finished"] == 880
    assert row["runs"][0]["unfinished"] == list(range(880, 900))
    assert row["fct_s"]["mean"] > complete["fct_s"]["mean"], "unfinished flows must not improve the mean"
    assert row["throughput"]["mean"] < complete["throughput"]["mean"]
    stranded = cut.flows.filter(~pl.col("finished"))
    assert stranded["fct_s"].null_count() == 20
    assert stranded["age_s"].null_count() == 0
    ideal_over_age = stranded["ideal_fct_s"] / stranded["age_s"]
    assert (stranded["throughput"] - ideal_over_age).abs().max() < 1e-12  # type: ignore[operator]
    assert (stranded["slowdown"] * stranded["throughput"] - 1.0).abs().max() < 1e-12  # type: ignore[operator]
    assert row["slowdown"]["mean_censored"] and not complete["slowdown"]["mean_censored"]


def test_figures_that_unfinished_flows_make_bounds_are_marked(fabric: Fabric) -> None:
    marks = {
        "fct_s": ("mean", "p50", "p95", "p99", "mouse", "rabbit", "elephant"),
        "throughput": ("mean", "min", "p5"),
    }
    whole = synthetic.result(fabric, {"ecmp": 1.0}, runs=2).summary["schemes"][0]
    for row in (whole, *whole["runs"]):
        assert not any(row[key][f"{name}_censored"] for key, names in marks.items() for name in names)
    # 40 of 900 flows are cut off, all of them after less time than most other flows take.
    result = synthetic.result(fabric, {"ecmp": 1.0}, runs=2, unfinished=40)
    for one in result.outcomes:
        ages = one.outcome["end_ns"] - one.outcome["flows"]["start_ns"]
        one.outcome["flows"]["start_ns"][-40:] += ages[-40:] - 1000
    cut = result.summary["schemes"][0]
    for row, other in ((cut, whole), *zip(cut["runs"], whole["runs"], strict=True)):
        assert row["fct_s"]["p95"] < other["fct_s"]["p95"], "the end of the run limits it"
        assert row["fct_s"]["p99_censored"] is row["fct_s"]["p50_censored"] is row["fct_s"]["mean_censored"] is True
        assert row["throughput"]["mean_censored"] is row["throughput"]["min_censored"] is True
    # Unfinished flows that are older than all other flows leave lower percentiles exact.
    late = synthetic.result(fabric, {"ecmp": 1.0}, runs=1, unfinished=9)
    flows = late.outcomes[0].outcome["flows"]
    late.outcomes[0].outcome["end_ns"] += 10**13
    row = late.summary["schemes"][0]["fct_s"]
    ages = sorted(flows["finish_ns"][:-9] - flows["start_ns"][:-9])
    assert (row["p50_censored"], row["p95_censored"], row["p99_censored"]) == (False, False, True)
    assert row["p50"] == pytest.approx((ages[449] + ages[450]) / 2e9)
    assert row["p95"] == pytest.approx((0.95 * ages[854] + 0.05 * ages[855]) / 1e9, rel=0.05)


def test_long_lived_flows_have_no_fct_and_are_not_unfinished(fabric: Fabric) -> None:
    row = synthetic.result(fabric, {"ecmp": 1.0}, flows=16, long_lived=True).summary["schemes"][0]
    assert row["flows"] == {"offered": 48, "started": 48, "finished": 0, "unfinished": 0, "long_lived": 48}
    assert all(value is None for value in row["fct_s"].values())
    assert 0 < row["throughput"]["mean"] < 1


def test_flows_that_never_started_are_unfinished(fabric: Fabric) -> None:
    result = synthetic.result(fabric, {"ecmp": 1.0}, runs=1, unfinished=5)
    flows = result.outcomes[0].outcome["flows"]
    flows["start_ns"][-3:] = -1
    flows["src_port"][-3:] = flows["dst_port"][-3:] = -1
    row = result.summary["schemes"][0]
    assert row["flows"]["started"] == 897
    assert row["flows"]["unfinished"] == 5
    late = result.flows.tail(3)
    assert late["age_s"].null_count() == late["throughput"].null_count() == late["src_port"].null_count() == 3


def test_differences_are_taken_run_by_run(fabric: Fabric) -> None:
    schemes = synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}, runs=5).summary["schemes"]
    base, other = paired_differences(schemes, lambda run: run["throughput"]["mean"], 0)
    assert base is None
    assert other is not None
    pairs = zip(schemes[0]["runs"], schemes[1]["runs"], strict=True)
    expected = [b["throughput"]["mean"] - a["throughput"]["mean"] for a, b in pairs]
    assert other["mean"] == pytest.approx(sum(expected) / 5)
    assert other["ci95"] == pytest.approx(ci95(expected))


def test_an_interrupted_result_says_so(fabric: Fabric) -> None:
    content = synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}, runs=2, interrupted=True).summary
    assert content["complete"] is False
    assert [len(row["runs"]) for row in content["schemes"]] == [2, 0]
    assert set(content["schemes"][1]["throughput"].values()) == {None}
    assert {"mean", "ci95", "min", "p5"} <= set(content["schemes"][1]["throughput"])


@pytest.mark.usefixtures("undrawn")
def test_a_result_ended_by_a_failed_tool_says_so(fabric: Fabric) -> None:
    result = synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}, runs=2, failure=ToolError("`tc` ended with 2"))
    assert (result.complete, result.summary["complete"]) == (False, False)
    assert "Ended early, `tc` ended with 2.</strong>" in result.report()


def test_the_table_is_printed_even_if_the_folder_cannot_be_written(
    fabric: Fabric, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder = synthetic.result(fabric, {"ecmp": 1.0}, runs=2), OutFolder(tmp_path / "out")

    def full(_folder: Path, _kinds: object) -> None:
        raise PathloomError("cannot write `out/flows.parquet`: no space left on device")

    monkeypatch.setattr(result, "save", full)
    with pytest.raises(PathloomError, match="no space left"):
        deliver(result, folder, Outputs(folder.path, str(tmp_path / "result.json"), ("svg",), resume=False))
    assert "ecmp" in capsys.readouterr().out
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["complete"] is True


@pytest.mark.usefixtures("undrawn")
def test_files_of_others_are_not_replaced(cli: Cli, fabric: Fabric, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    for name in ("flows.parquet", "fabric.json"):
        (place / name).write_text("mine", encoding="utf-8")
    said = "`mine`: has fabric.json, flows.parquet but no result.json, so they may not be Pathloom's; move them"
    small = ["--fabric", "diamond", "--traffic", "long-lived", "--duration", "1ms", "--runs", "1", "--schemes", "ecmp"]
    refused = cli("compare", *small, "--out", "mine")
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    with pytest.raises(PathloomError, match=r"has fabric\.json, flows\.parquet but no"):
        synthetic.result(fabric, {"ecmp": 1.0}).save(place)
    assert {path.name: path.read_text(encoding="utf-8") for path in place.iterdir()} == {
        "flows.parquet": "mine",
        "fabric.json": "mine",
    }
    for path in place.iterdir():
        path.rename(place / f"my-{path.name}")
    assert cli("compare", *small, "--out", "mine").code == 0
    assert (place / "my-fabric.json").read_text(encoding="utf-8") == "mine"


def test_notes_on_runs_are_printed(fabric: Fabric, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(synthetic.result(fabric, {"ecmp": 1.0}, runs=2))
    assert capsys.readouterr().out.endswith("\nNote: made up.\n")


@pytest.mark.usefixtures("undrawn")
def test_tables_have_the_stated_columns_and_read_back(fabric: Fabric, tmp_path: Path) -> None:
    result = synthetic.result(fabric, {"ecmp": 1.0}, runs=2)
    written = result.save(tmp_path / "results")
    assert written[-1].name == "result.json", "the file that marks a complete folder is written last"
    assert all(path.is_file() for path in written)
    flows, links = (pl.read_parquet(tmp_path / f"results/{name}.parquet") for name in ("flows", "links"))
    assert dict(flows.schema) == FLOW_SCHEMA
    assert dict(links.schema) == LINK_SCHEMA
    assert flows.equals(result.flows)
    assert links.height == 2 * len(fabric.links["source"])
    assert links.filter(pl.col("between_switches")).height == 2 * 64
    assert json.loads((tmp_path / "results/result.json").read_text(encoding="utf-8")) == json.loads(result.json())


@pytest.mark.usefixtures("undrawn")
def test_a_fabric_built_in_python_is_saved_with_the_result(tmp_path: Path) -> None:
    own = Fabric.from_networkx(diamond().to_networkx())
    result = synthetic.result(own, {"ecmp": 1.0}, runs=1)
    result.save(tmp_path)
    again = Fabric(str(tmp_path / "fabric.json"))
    assert again.links == own.links
    assert "--fabric fabric.json" in result.settings.command()


def test_a_file_is_whole_or_untouched(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("before", encoding="utf-8")

    def fail_half_way(path: Path) -> None:
        path.write_text("half", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(PathloomError, match=r"result.json`: no space left"):
        write_atomically(target, fail_half_way)
    assert target.read_text(encoding="utf-8") == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_file_takes_the_place_of_neither_a_device_nor_a_link(tmp_path: Path) -> None:
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(file)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text, encoding="utf-8")
        check_writable(pipe)
        write_text(pipe, "figures")
        assert read.result(timeout=60) == "figures"
    write_text(link, "figures")
    check_writable(link)
    assert pipe.is_fifo() and link.is_symlink()
    assert file.read_text(encoding="utf-8") == "figures"
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "file", "link"}


@pytest.mark.usefixtures("undrawn")
def test_a_new_result_replaces_all_files_of_the_old_one(fabric: Fabric, tmp_path: Path) -> None:
    own = Fabric.from_networkx(diamond().to_networkx())
    synthetic.result(own, {"spt": 0.6, "ecmp": 1.0}, runs=2).save(tmp_path)
    (tmp_path / "mine.svg").write_text("of the user", encoding="utf-8")
    assert {"fct-cdf.svg", "means.svg", "fabric.json"} <= {path.name for path in tmp_path.iterdir()}
    second = synthetic.result(fabric, {"ecmp": 1.0}, flows=16, long_lived=True)
    written = second.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(path.name for path in written), "mine.svg"])
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == json.loads(second.json())


@pytest.mark.usefixtures("undrawn")
def test_every_file_of_a_result_is_known_by_name(fabric: Fabric, tmp_path: Path) -> None:
    results = [
        synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}, runs=2),
        synthetic.result(fabric, {"spt": 0.6, "ecmp": 1.0}, flows=16, long_lived=True),
        synthetic.result(Fabric.from_networkx(diamond().to_networkx()), {"ecmp": 1.0}, runs=1),
        synthetic.result(fabric, {"mptcp": 1.0}, runs=1, subflows=True),
        compare(fabric="diamond", traffic="long-lived", schemes=["ecmp"], duration="10ms", runs=1, series="1ms"),
    ]
    names = {path.name for place, one in enumerate(results) for path in one.save(tmp_path / str(place), PLOT_KINDS)}
    assert names == set(FILES), "otherwise a file of an old result stays beside new ones"


@pytest.mark.usefixtures("undrawn")
def test_a_failed_save_leaves_the_folder_unchanged(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.result(fabric, {"ecmp": 1.0}, runs=1).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    second = synthetic.result(fabric, {"ecmp": 1.0}, flows=16, long_lived=True)

    def full(_result: Result) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Result, "json", full)
        with pytest.raises(OSError, match="No space"):
            second.save(tmp_path)
    with pytest.raises(PathloomError, match=r"cannot write `.*last.txt`: no space left"):
        replace_files(tmp_path, [("flows.parquet", Path.touch), ("last.txt", lambda path: full(second))], FILES)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_new_unused_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    folder = OutFolder(tmp_path / "here/a/b")
    assert folder.path.is_dir()
    folder.remove_if_empty()
    assert list(tmp_path.iterdir()) == [tmp_path / "here"]
    kept = OutFolder(tmp_path / "here/c")
    (kept.path / "result.json").write_text("{}", encoding="utf-8")
    kept.remove_if_empty()
    assert kept.path.is_dir()


def test_json_has_only_finite_numbers(fabric: Fabric) -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for part in value.values():
                check(part)
        elif isinstance(value, list):
            for part in value:
                check(part)
        elif isinstance(value, float):
            assert math.isfinite(value)

    check(json.loads(synthetic.result(fabric, {"ecmp": 1.0}, unfinished=3).json()))


def test_unknown_queues_are_null_and_can_be_shown(tmp_path: Path) -> None:
    # The lab does not see the queues of hosts.
    result = synthetic.result(Fabric("diamond"), {"ecmp": 1.0}, runs=1, flows=20)
    result.outcomes[0].outcome["links"]["mean_queue"][0] = float("nan")
    result.save(tmp_path / "made")
    queues = pl.read_parquet(tmp_path / "made/links.parquet").sort("link")["mean_queue"].to_list()
    assert queues[0] is None and None not in queues[1:]
    shown = Results(sources.folder(tmp_path / "made")).links("ecmp", 1)
    assert json.loads(json.dumps(shown, allow_nan=False))["mean_queue"][0] is None

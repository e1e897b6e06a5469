"""Runs the artefact of ConWeave, an ns-3, on a case."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from setups import START_S, Case, flow_file, ideal_ns

CONTROLS = {"dcqcn": 1, "hpcc": 3, "timely": 7}
BALANCERS = {"ecmp": 0, "drill": 2, "conga": 3, "letflow": 6, "conweave": 9}
HEADER = 48
"""Ethernet, IPv4, UDP and sequence number."""
THRESHOLDS = {"KMAX_MAP": "400", "KMIN_MAP": "100", "PMAX_MAP": "0.2"}
"""Marks from 100 to 400 KB in a queue, with a probability of up to 0.2."""
COMMON = {
    "SW_MONITORING_INTERVAL": 100_000_000,
    "BUFFER_SIZE": 9,
    "USE_DYNAMIC_PFC_THRESHOLD": 1,
    "ALPHA_RESUME_INTERVAL": 1,
    "RATE_DECREASE_INTERVAL": 4,
    "CLAMP_TARGET_RATE": 0,
    "RP_TIMER": 300,
    "FAST_RECOVERY_TIMES": 1,
    "EWMA_GAIN": 0.00390625,
    "MIN_RATE": "100Mb/s",
    "DCTCP_RATE_AI": "1000Mb/s",
    "ERROR_RATE_PER_LINK": 0,
    "L2_CHUNK_SIZE": 4000,
    "L2_ACK_INTERVAL": 1,
    "L2_BACK_TO_ZERO": 0,
    "RATE_BOUND": 1,
    "GLOBAL_T": 1,
    "U_TARGET": 0.95,
    "MULTI_RATE": 0,
    "SAMPLE_FEEDBACK": 0,
    "ENABLE_QCN": 1,
    "PACKET_PAYLOAD_SIZE": 1024,
    "LINK_DOWN": "0 0 0",
    "RANDOM_SEED": 1,
    "CONWEAVE_TX_EXPIRY_TIME": 300,
    "CONWEAVE_REPLY_TIMEOUT_EXTRA": 4,
    "CONWEAVE_PATH_PAUSE_TIME": 16,
    "CONWEAVE_EXTRA_VOQ_FLUSH_TIME": 16,
    "CONWEAVE_DEFAULT_VOQ_WAITING_TIME": 200,
}
"""The settings of the artefact's `run.py`, with the payload of this comparison, and without most of its monitoring."""
OF_CONTROL: dict[str, dict[str, object]] = {
    "dcqcn": {"RATE_AI": "40Mb/s", "RATE_HAI": "100Mb/s", "HAS_WIN": 0, "VAR_WIN": 0},
    "hpcc": {"RATE_AI": "40Mb/s", "RATE_HAI": "40Mb/s", "HAS_WIN": 1, "VAR_WIN": 1, "MI_THRESH": 5, "FAST_REACT": 1},
    "timely": {"RATE_AI": "100Mb/s", "RATE_HAI": "500Mb/s", "HAS_WIN": 0, "VAR_WIN": 0},
}
OUTPUTS = (
    "FLOW_INPUT_FILE CNP_OUTPUT_FILE FCT_OUTPUT_FILE PFC_OUTPUT_FILE QLEN_MON_FILE VOQ_MON_FILE VOQ_MON_DETAIL_FILE "
    "UPLINK_MON_FILE CONN_MON_FILE EST_ERROR_MON_FILE"
)


def configuration(case: Case, root: Path, folder: Path) -> str:
    """The file of settings of a run."""
    last_s = START_S + max(flow.start_ns for flow in case.flows) * 1e-9
    values: dict[str, object] = {
        "TOPOLOGY_FILE": root / "config/leaf_spine_128_100G_OS2.txt",
        "FLOW_FILE": folder / "flow.txt",
        **{name: folder / name.lower() for name in OUTPUTS.split()},
        "FLOWGEN_START_TIME": START_S,
        "FLOWGEN_STOP_TIME": last_s,
        "QLEN_MON_START": START_S,
        "QLEN_MON_END": last_s,
        "CC_MODE": CONTROLS[case.control],
        "LB_MODE": BALANCERS[case.balancer],
        "ENABLE_PFC": 1,
        "ENABLE_IRN": 0,
        "LOAD": 50,
        "MI_THRESH": 0,
        "FAST_REACT": 0,
        "INT_MULTI": 1,
        **COMMON,
        **{key: f"1 100000000000 {value}" for key, value in THRESHOLDS.items()},
        **OF_CONTROL[case.control],
    }
    return "".join(f"{key} {value}\n" for key, value in values.items())


def run(case: Case, root: Path) -> list[float]:
    """The slowdown of each flow, in the order of the case."""
    program = root / "build/scratch/network-load-balance"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flow.txt").write_text(flow_file(case.flows))
        (folder / "config.txt").write_text(configuration(case, root, folder))
        environment = {**os.environ, "LD_LIBRARY_PATH": str(root / "build")}
        command = ["nice", "-n", "5", str(program), str(folder / "config.txt")]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
        rows = [line.split() for line in (folder / "fct_output_file").read_text().splitlines()]
        if len(rows) != len(case.flows):
            raise SystemExit(f"{case.name}: {len(rows)} of {len(case.flows)} flows finished\n{done.stderr[-2000:]}")
    # ns-3 rounds starts to its own nanosecond, so flows are found by their ends and size, in the order of their starts.
    found: dict[tuple[int, int, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: -int(row[5])):
        found.setdefault((int(row[0]), int(row[1]), int(row[4])), []).append(int(row[6]))
    slowdowns = []
    for flow in case.flows:
        time_ns = found[flow.source, flow.target, flow.size_bytes].pop()
        slowdowns.append(max(1.0, time_ns / ideal_ns(flow, HEADER)))
    return slowdowns

"""Three independent judges of the OpenFlow codec: tshark, os-ken and c65of read its messages.

`cargo test -p pathloom-openflow --test all samples` records the bytes, and proves that the codec still writes the same.
"""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

SAMPLES: dict[str, bytes] = {
    sample["name"]: bytes.fromhex(sample["hex"])
    for sample in json.loads(Path("crates/openflow/tests/samples.json").read_text(encoding="utf-8"))
}
RAW_IP = 101
"""Link type of captures whose packets start with an IP header."""
OPENFLOW = 6653

SEEN_BY_TSHARK: dict[str, dict[str, list[str]]] = {
    "hello": {"hello_element.version.bitmap": ["00:00:00:10"]},
    "error": {"error.type": ["5"], "error.code": ["1"]},
    "features_reply": {"switch_features.datapath_id": ["0x0000000000000021"], "switch_features.n_tables": ["254"]},
    "packet_in": {"packet_in.total_len": ["46"], "oxm.value_uint32": ["3"], "ip.dst": ["10.0.1.2"]},
    "flow_removed": {"flow_removed.reason": ["0"], "flow_removed.priority": ["1000"], "flow_removed.byte_count": ["7"]},
    "port_status": {"port_status.reason": ["2"], "port.name": ["s1-eth3"], "port.state.link_down": ["1"]},
    "packet_out_lldp": {"action.output.port": ["3"], "lldp.time_to_live": ["120"]},
    "packet_out_arp": {"arp.opcode": ["2"], "arp.src.proto_ipv4": ["10.0.0.2"], "arp.dst.proto_ipv4": ["10.0.0.1"]},
    "flow_add": {
        "flowmod.command": ["0"],
        "flowmod.cookie": ["0xa000000000000001"],
        "flowmod.flags.send_flow_rem": ["1"],
        "oxm.field": ["0", "5", "6", "10", "11", "12", "13", "14", "6"],
        "oxm.value_vlan_vid": ["7", "9"],
        "oxm.value_ipv4addr": ["10.0.0.1", "10.0.1.2"],
        "oxm.value_uint16": ["1234", "80"],
        "instruction.type": ["6", "4", "1"],
        "instruction.meter.meter_id": ["5"],
        "action.type": ["18", "17", "25", "0", "0"],
        "action.output.port": ["4294967293", "4"],
        "instruction.goto_table.table_id": ["2"],
    },
    "flow_add_first": {
        "oxm.ipv4_mask": ["255.255.255.0"],
        "oxm_experimenter.experimenter": ["0x4f4e4600"],
        "oxm_experimenter.value": ["00:02:00:12"],
    },
    "flow_add_arp_of_host": {
        "oxm.field": ["0", "3", "4", "5", "22", "24"],
        "oxm.hm": ["0", "1", "0", "0", "0", "0"],
        "oxm.value_etheraddr": ["00:00:00:00:00:00", "02:00:00:00:16:01", "02:00:00:00:16:01"],
        "oxm.ether_mask": ["01:00:00:00:00:00"],
        "oxm.value_ethertype": ["0x0806"],
        "oxm.value_ipv4addr": ["10.0.0.2"],
    },
    "flow_add_arp_to_station": {
        "oxm.field": ["3", "5", "21"],
        "oxm.value_etheraddr": ["02:00:00:00:00:01"],
        "oxm.value": ["00:01"],
    },
    "flow_add_arp_route": {
        "oxm.field": ["5", "23"],
        "oxm.hm": ["0", "1"],
        "oxm.value_ipv4addr": ["10.0.1.0"],
        "oxm.ipv4_mask": ["255.255.255.0"],
    },
    "flow_add_arp_route_to_host": {"oxm.hm": ["0", "0"], "oxm.value_ipv4addr": ["10.0.1.2"]},
    "flow_delete_arp_route": {"flowmod.command": ["4"], "oxm.field": ["5", "23"], "oxm.hm": ["0", "1"]},
    "flow_delete": {"flowmod.command": ["4"], "flowmod.out_port": ["4294967295"], "flowmod.priority": ["1000"]},
    "group_select": {"groupmod.type": ["1"], "bucket.weight": ["1", "1"], "bucket.watch_port": ["1", "2"]},
    "group_failover": {"groupmod.type": ["3"], "bucket.weight": ["0", "0"], "bucket.watch_port": ["1", "2"]},
    "group_delete": {"groupmod.command": ["2"], "groupmod.group_id": ["1"]},
    "meter_add": {"metermod.flags": ["0x00000005"], "meter_band.rate": ["10000"], "meter_band.burst_size": ["120"]},
    "flow_stats_request": {"flow_stats_request.cookie_mask": ["0xfc00000000000000"]},
    "flow_stats_reply": {"flow_stats.packet_count": ["678", "678"], "flow_stats.byte_count": ["91011", "91011"]},
    "port_stats_reply": {"port_stats.tx_bytes": ["4"], "port_stats.collisions": ["12"]},
    "port_desc_reply": {"port.hw_addr": ["02:00:00:00:00:03"], "port.name": ["s1-eth3"]},
    "meter_config_reply": {"meter_band.rate": ["10000"]},
}
"""Fields by message. Those of OpenFlow lack their prefix `openflow_v4.`."""


def capture(path: Path, messages: list[bytes]) -> None:
    """Writes a capture of one TCP connection on the loopback with one message per segment."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW_IP))
        sequence = 1
        for number, message in enumerate(messages):
            tcp = struct.pack(">HHIIBBHHH", 40000, OPENFLOW, sequence, 1, 0x50, 0x18, 65535, 0, 0)
            sequence += len(message)
            here = bytes([127, 0, 0, 1])
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(message), number, 0, 64, 6, 0, here, here)
            packet = ip + tcp + message
            file.write(struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet)


def fields(node: Any, found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns all values of a dissection by the name of their field, in order."""
    if isinstance(node, dict):
        for name, value in node.items():
            values = value if isinstance(value, list) else [value]
            texts = [text for text in values if isinstance(text, str)]
            if texts:
                found.setdefault(name.removeprefix("openflow_v4."), []).extend(texts)
            for inner in values:
                fields(inner, found)
    return found


@pytest.fixture(scope="module")
def dissected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("openflow") / "samples.pcap"
    capture(path, list(SAMPLES.values()))
    command = ["tshark", "-r", str(path), "-d", f"tcp.port=={OPENFLOW},openflow", "-T", "json", "--no-duplicate-keys"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.fail("tshark is not installed; `make test-python` installs it, or type: scripts/prepare.sh judges")
    packets = [packet["_source"]["layers"] for packet in json.loads(done.stdout)]
    assert len(packets) == len(SAMPLES)
    return dict(zip(SAMPLES, packets, strict=True))


@pytest.mark.parametrize("name", SAMPLES)
def test_tshark_reads_our_messages(name: str, dissected: dict[str, Any]) -> None:
    layers = dissected[name]
    assert "malformed" not in json.dumps(layers).lower()
    found = fields({layer: value for layer, value in layers.items() if layer.startswith("openflow")}, {})
    message = SAMPLES[name]
    assert (found["type"][0], found["length"][0]) == (str(message[1]), str(len(message)))
    for field, values in SEEN_BY_TSHARK.get(name, {}).items():
        assert found[field] == values, field


def test_every_kind_of_message_is_tested() -> None:
    assert set(SEEN_BY_TSHARK) <= set(SAMPLES)
    kinds = {message[1] for message in SAMPLES.values()}
    assert kinds == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 24, 25, 29}


def judged(name: str) -> str:
    """Returns the output of a judge. Judges have their own virtual environment, since they need many packages."""
    python = Path(".venv/judges/bin/python")
    if not python.exists():
        pytest.fail("the judges are not installed; `make test-python` installs them, or type: make .venv/judges/.deps")
    command = [str(python), "benches/openflow/judges_read.py", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.mark.parametrize("judge", ["os-ken", "c65of"])
def test_a_judge_reads_and_writes_the_same(judge: str) -> None:
    assert judged(judge) == f"{judge} agrees on {len(SAMPLES)} messages"


def test_judges_agree_on_our_messages() -> None:
    assert judged("both") == "os-ken and c65of find the same in 28 messages"

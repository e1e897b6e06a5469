"""os-ken and c65of check Pathloom's OpenFlow messages: they read them, and write the same bytes for requests.

Runs in `.venv/judges` (`make .venv/judges/.deps`), from the root of the project, with the name of a judge, or with
`both` to compare what the two judges read.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES: dict[str, bytes] = {
    sample["name"]: bytes.fromhex(sample["hex"])
    for sample in json.loads(Path("crates/openflow/tests/samples.json").read_text(encoding="utf-8"))
}

SEEN: dict[str, dict[str, Any]] = {
    "error": {"type": 5, "code": 1},
    "features_reply": {"datapath_id": 0x21, "n_tables": 254, "capabilities": 0x4F},
    "get_config_reply": {"miss_send_len": 128},
    "packet_in": {"total_len": 46, "table_id": 1, "cookie": 0xA0},
    "flow_removed": {"cookie": 0xA000_0000_0000_0001, "reason": 0, "packet_count": 6, "byte_count": 7},
    "port_status": {"reason": 2},
    "role_reply": {"role": 2, "generation_id": 3},
    "bundle_open": {"experimenter": 0x4F4E_4600, "exp_type": 2300},
    "flow_add": {"cookie": 0xA000_0000_0000_0001, "table_id": 1, "command": 0, "priority": 1000, "idle_timeout": 10},
    "flow_delete": {"command": 4, "out_group": 0xFFFF_FFFF},
}
"""Expected attributes by message; both judges have the same names."""
EXPERIMENTER = 4
"""Type of messages of extensions."""


class Judge(NamedTuple):
    """A library for OpenFlow 1.3: its constants, its messages, and its object for a switch."""

    words: Any
    parts: Any
    protocol: Any

    def read(self, message: bytes) -> Any:
        """Returns the message, read by this library."""
        version, kind, length, xid = message[0], message[1], int.from_bytes(message[2:4]), int.from_bytes(message[4:8])
        if hasattr(self.parts, "msg_parser"):
            return self.parts.msg_parser(self.protocol, version, kind, length, xid, message)
        return self.parts.msg(self.protocol, version, kind, length, xid, message)


def judge_of(name: str) -> Judge:
    """Returns os-ken or c65of."""
    if name == "os-ken":
        protocol = importlib.import_module("os_ken.ofproto.ofproto_protocol").ProtocolDesc(version=4)
        words = importlib.import_module("os_ken.ofproto.ofproto_v1_3")
        return Judge(words, importlib.import_module("os_ken.ofproto.ofproto_v1_3_parser"), protocol)
    words = importlib.import_module("c65of.ofproto")
    return Judge(words, importlib.import_module("c65of.ofproto.parser"), None)


def check_reading(judge: Judge) -> None:
    """Checks that the judge reads Pathloom's messages."""
    for name, message in SAMPLES.items():
        if name in requests(judge):
            continue
        parsed = judge.read(message)
        assert parsed is not None, name
        assert (parsed.msg_len, parsed.xid) == (len(message), 1), name
        for attribute, value in SEEN.get(name, {}).items():
            assert getattr(parsed, attribute) == value, (name, attribute)


def check_a_rule(judge: Judge) -> None:
    """Checks that the judge finds every part of a rule."""
    reply = judge.read(SAMPLES["flow_stats_reply"])
    assert len(reply.body) == 2
    rule = reply.body[0]
    expected = {"in_port": 3, "eth_type": 0x0800, "vlan_vid": 0x1007, "ip_proto": 6, "tcp_src": 1234, "tcp_dst": 80}
    addresses = {"ipv4_src": "10.0.0.1", "ipv4_dst": "10.0.1.2"}
    assert dict(rule.match.items()) == {**expected, **addresses}
    assert [type(one).__name__ for one in rule.instructions] == [
        "OFPInstructionMeter",
        "OFPInstructionActions",
        "OFPInstructionGotoTable",
    ]
    assert [type(one).__name__ for one in rule.instructions[1].actions] == [
        "OFPActionPopVlan",
        "OFPActionPushVlan",
        "OFPActionSetField",
        "OFPActionOutput",
        "OFPActionOutput",
    ]


def check_arp(judge: Judge) -> None:
    """Checks that the judge finds every field of the matches for ARP, with its mask."""
    host = "02:00:00:00:16:01"
    station = ("00:00:00:00:00:00", "01:00:00:00:00:00")
    of_host = {"in_port": 3, "eth_dst": station, "eth_src": host, "arp_spa": "10.0.0.2", "arp_sha": host}
    matches: dict[str, dict[str, Any]] = {
        "flow_add_arp_of_host": of_host,
        "flow_add_arp_to_station": {"eth_dst": "02:00:00:00:00:01", "arp_op": 1},
        "flow_add_arp_route": {"arp_tpa": ("10.0.1.0", "255.255.255.0")},
        "flow_add_arp_route_to_host": {"arp_tpa": "10.0.1.2"},
        "flow_delete_arp_route": {"arp_tpa": ("10.0.1.0", "255.255.255.0")},
    }
    for name, expected in matches.items():
        assert dict(judge.read(SAMPLES[name]).match.items()) == {"eth_type": 0x0806, **expected}, name


def requests(judge: Judge) -> dict[str, Any]:
    """Returns the messages that the libraries write but do not read, made by this library."""
    words, parts, protocol = judge
    ours, mask = 0xA000_0000_0000_0000, 0xFC00_0000_0000_0000
    everything = (protocol, 0, words.OFPTT_ALL, words.OFPP_ANY, words.OFPG_ANY, ours, mask, parts.OFPMatch())
    return {
        "features_request": parts.OFPFeaturesRequest(protocol),
        "get_config_request": parts.OFPGetConfigRequest(protocol),
        "set_config": parts.OFPSetConfig(protocol, 0, 128),
        "barrier_request": parts.OFPBarrierRequest(protocol),
        "role_request": parts.OFPRoleRequest(protocol, words.OFPCR_ROLE_MASTER, 3),
        "desc_request": parts.OFPDescStatsRequest(protocol, 0),
        "flow_stats_request": parts.OFPFlowStatsRequest(*everything),
        "table_stats_request": parts.OFPTableStatsRequest(protocol, 0),
        "port_stats_request": parts.OFPPortStatsRequest(protocol, 0, words.OFPP_ANY),
        "port_desc_request": parts.OFPPortDescStatsRequest(protocol, 0),
        "group_stats_request": parts.OFPGroupStatsRequest(protocol, 0, words.OFPG_ALL),
        "group_desc_request": parts.OFPGroupDescStatsRequest(protocol, 0),
        "meter_stats_request": parts.OFPMeterStatsRequest(protocol, 0, words.OFPM_ALL),
        "meter_config_request": parts.OFPMeterConfigStatsRequest(protocol, 0, words.OFPM_ALL),
        **changes(judge),
    }


def changes(judge: Judge) -> dict[str, Any]:
    """Returns groups, meters and packet-outs, which the libraries do not read either."""
    words, parts, protocol = judge
    group = 0x5000_0000

    def out(port: int) -> list[Any]:
        return [parts.OFPActionOutput(port, 0)]

    def buckets(weight: int) -> list[Any]:
        return [parts.OFPBucket(weight, port, words.OFPG_ANY, out(port)) for port in (1, 2)]

    def packet_out(name: str) -> Any:
        # The packet follows the header, the fixed part and the one action.
        data = SAMPLES[name][8 + 16 + 16 :]
        return parts.OFPPacketOut(protocol, words.OFP_NO_BUFFER, words.OFPP_CONTROLLER, out(3), data)

    band = parts.OFPMeterBandDrop(rate=10_000, burst_size=120)
    flags = words.OFPMF_KBPS | words.OFPMF_BURST
    return {
        "group_select": parts.OFPGroupMod(protocol, words.OFPGC_ADD, words.OFPGT_SELECT, group, buckets(1)),
        "group_failover": parts.OFPGroupMod(protocol, words.OFPGC_ADD, words.OFPGT_FF, group, buckets(0)),
        "group_all": parts.OFPGroupMod(protocol, words.OFPGC_ADD, words.OFPGT_ALL, group, buckets(0)),
        "group_delete": parts.OFPGroupMod(protocol, words.OFPGC_DELETE, words.OFPGT_ALL, 1, []),
        "meter_add": parts.OFPMeterMod(protocol, words.OFPMC_ADD, flags, 5, [band]),
        "meter_delete": parts.OFPMeterMod(protocol, words.OFPMC_DELETE, flags, 5, []),
        "packet_out_lldp": packet_out("packet_out_lldp"),
        "packet_out_arp": packet_out("packet_out_arp"),
    }


def check_writing(judge: Judge) -> None:
    """Checks that the judge writes the same bytes as Pathloom."""
    for name, request in requests(judge).items():
        request.set_xid(1)
        request.serialize()
        assert bytes(request.buf) == SAMPLES[name], name


def check_alike(one: Judge, other: Judge) -> int:
    """Checks that both judges find the same in every message that both read. Returns the number of messages."""
    found = 0
    for name, message in SAMPLES.items():
        # Only one of the judges knows extensions of OpenFlow.
        if name in requests(one) or message[1] == EXPERIMENTER:
            continue
        seen = [json.dumps(judge.read(message).to_jsondict(), sort_keys=True) for judge in (one, other)]
        assert seen[0] == seen[1], (name, *seen)
        found += 1
    return found


def main(name: str) -> None:
    """Prints what the judge agrees on, or fails."""
    if name == "both":
        print(f"os-ken and c65of find the same in {check_alike(judge_of('os-ken'), judge_of('c65of'))} messages")
        return
    judge = judge_of(name)
    check_reading(judge)
    check_a_rule(judge)
    check_arp(judge)
    check_writing(judge)
    print(f"{name} agrees on {len(SAMPLES)} messages")


if __name__ == "__main__":
    main(sys.argv[1])

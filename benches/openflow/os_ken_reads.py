"""os-ken as a judge of our OpenFlow messages: it reads what we wrote, and what it can only write it writes alike.

Runs in `.venv/judges` (`make .venv/judges/.deps`), from the root of the project.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from os_ken.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

SAMPLES: dict[str, bytes] = {
    sample["name"]: bytes.fromhex(sample["hex"])
    for sample in json.loads(Path("crates/openflow/tests/samples.json").read_text(encoding="utf-8"))
}

SEEN_BY_OS_KEN: dict[str, dict[str, Any]] = {
    "error": {"type": 5, "code": 1},
    "features_reply": {"datapath_id": 0x21, "n_tables": 254, "capabilities": 0x4F},
    "get_config_reply": {"miss_send_len": 128},
    "packet_in": {"total_len": 46, "table_id": 1, "cookie": 0xA0},
    "flow_removed": {"cookie": 0xA000_0000_0000_0001, "reason": 0, "packet_count": 6, "byte_count": 7},
    "port_status": {"reason": 2},
    "role_reply": {"role": 2, "generation_id": 3},
    "bundle_open": {"experimenter": 0x4F4E_4600, "exp_type": 2300},
    "flow_add": {"cookie": 0xA000_0000_0000_0001, "table_id": 1, "command": 0, "priority": 1000, "idle_timeout": 10},
    "flow_delete": {"command": 4, "out_group": ofproto_v1_3.OFPG_ANY},
}
"""Attributes by message, as os-ken names them."""


def check_reading() -> None:
    """os-ken reads what we wrote."""
    protocol = ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
    for name, message in SAMPLES.items():
        if name in requests(protocol):
            continue
        version, kind, length, xid = ofproto_parser.header(message)
        parsed = ofproto_v1_3_parser.msg_parser(protocol, version, kind, length, xid, message)
        assert parsed is not None, name
        assert (parsed.msg_len, parsed.xid) == (len(message), 1), name
        for attribute, value in SEEN_BY_OS_KEN.get(name, {}).items():
            assert getattr(parsed, attribute) == value, (name, attribute)


def check_a_rule() -> None:
    """os-ken finds every part of a rule."""
    protocol = ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
    message = SAMPLES["flow_stats_reply"]
    reply = ofproto_v1_3_parser.msg_parser(protocol, *ofproto_parser.header(message), message)
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


def requests(protocol: ProtocolDesc) -> dict[str, Any]:
    """What os-ken writes and does not read, as it writes it."""
    words, parts = ofproto_v1_3, ofproto_v1_3_parser
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
        **changes(protocol),
    }


def changes(protocol: ProtocolDesc) -> dict[str, Any]:
    """Groups, meters and packets out, of which the same holds."""
    words, parts = ofproto_v1_3, ofproto_v1_3_parser
    group = 0x5000_0000

    def out(port: int) -> list[Any]:
        return [parts.OFPActionOutput(port, 0)]

    def buckets(weight: int) -> list[Any]:
        return [parts.OFPBucket(weight, port, words.OFPG_ANY, out(port)) for port in (1, 2)]

    def packet_out(name: str) -> Any:
        # The packet stands behind the header, the fixed part and the one action.
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


def check_writing() -> None:
    """os-ken writes what we write."""
    for name, request in requests(ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)).items():
        request.set_xid(1)
        request.serialize()
        assert bytes(request.buf) == SAMPLES[name], name


if __name__ == "__main__":
    check_reading()
    check_a_rule()
    check_writing()
    print(f"os-ken agrees on {len(SAMPLES)} messages")

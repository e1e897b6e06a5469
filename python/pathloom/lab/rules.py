"""The rules of the model in the syntax of `ovs-ofctl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

PROTO_TCP, PROTO_UDP = 6, 17
TABLE_LONG_FLOWS = 1
PIN_PRIORITY = 900
"""Priority of rules that pin flows: below a scheme's rules for single flows (1000 and above), above all others."""
_FLAGS = (("fin", 0x01), ("syn", 0x02), ("rst", 0x04), ("psh", 0x08), ("ack", 0x10), ("urg", 0x20))


def flow_line(rule: Mapping[str, Any], copies: bool) -> str:
    """Returns a rule as a line for `ovs-ofctl add-flows`. Without `copies`, it sends no packets to a controller.

    >>> match = {"dst": {"address": "10.0.1.0", "len": 24}}
    >>> rule = {"table": 2, "priority": 124, "matches": match, "actions": [{"Output": 3}], "goto": None, "cookie": 7}
    >>> flow_line(rule, copies=False)
    'table=2,priority=124,cookie=0x7,ip,nw_dst=10.0.1.0/24,actions=output:3'
    """
    fields = [f"table={rule['table']}", f"priority={rule['priority']}", f"cookie={rule['cookie']:#x}"]
    for name in ("idle_timeout_s", "hard_timeout_s"):
        if rule.get(name):
            fields.append(f"{name.removesuffix('_s')}={rule[name]}")
    fields += _match_fields(rule["matches"])
    return ",".join([*fields, f"actions={_actions(rule['actions'], rule.get('goto'), copies)}"])


def group_line(group: Mapping[str, Any], salt: int) -> str:
    """Returns a group as a line for `ovs-ofctl add-groups`, in OpenFlow 1.5.

    Flows are spread by a hash of the five-tuple and `salt`. Each switch needs a different salt. Otherwise every switch
    would choose as the switch before it, and half of a fat tree would stay idle.
    """
    kind = {"Select": "select", "FastFailover": "ff", "All": "all"}[group["kind"]]
    parts = [f"group_id={group['id']}", f"type={kind}"]
    if kind == "select":
        parts.append(f"selection_method=dp_hash,selection_method_param={salt}")
    for number, bucket in enumerate(group["buckets"]):
        words = [f"bucket=bucket_id:{number}"]
        if kind == "select":
            words.append(f"weight:{bucket['weight']}")
        if bucket["watch_port"] is not None and kind != "all":
            words.append(f"watch_port:{bucket['watch_port']}")
        parts.append(",".join([*words, f"actions={_actions(bucket['actions'], None, copies=False)}"]))
    return ",".join(parts)


def pin_lines(flow: Mapping[str, Any], links: Mapping[str, Sequence[int]], spread: Mapping[int, set[int]]) -> Iterator[
    tuple[int, str]
]:  # fmt: skip
    """Yields the rules that send one flow along the paths computed for it, as pairs of switch and line.

    Only switches that would spread the flow by their own hash need a rule. `spread` has, by switch, the ports over
    which its groups spread flows.
    """
    ends = [(flow["src_address"], flow["src_port"]), (flow["dst_address"], flow["dst_port"])]
    for (source, target), path in zip(((ends[0], ends[1]), (ends[1], ends[0])), flow["ways"], strict=True):
        for link in path:
            switch, port = links["source"][link], links["source_port"][link]
            if port in spread.get(switch, ()):
                tuple_ = f"nw_src={source[0]},tp_src={source[1]},nw_dst={target[0]},tp_dst={target[1]}"
                yield switch, f"table={TABLE_LONG_FLOWS},priority={PIN_PRIORITY},tcp,{tuple_},actions=output:{port}"


def spread_ports(groups: Iterable[Mapping[str, Any]]) -> set[int]:
    """The ports over which the groups of a switch spread flows."""
    buckets = (bucket for group in groups if group["kind"] == "Select" for bucket in group["buckets"])
    return {action["Output"] for bucket in buckets for action in bucket["actions"] if _is(action, "Output")}


def _match_fields(match: Mapping[str, Any]) -> list[str]:
    given = {name: value for name, value in match.items() if value is not None}
    fields = [f"in_port={given['in_port']}"] if "in_port" in given else []
    proto = given.get("proto")
    if proto in (PROTO_TCP, PROTO_UDP):
        fields.append("tcp" if proto == PROTO_TCP else "udp")
    elif given.keys() - {"in_port", "tag"}:
        fields.append("ip")
        if proto is not None:
            fields.append(f"nw_proto={proto}")
    for name, field in (("src", "nw_src"), ("dst", "nw_dst")):
        if name in given:
            fields.append(f"{field}={given[name]['address']}/{given[name]['len']}")
    for name, field in (("src_port", "tp_src"), ("dst_port", "tp_dst"), ("dscp", "ip_dscp"), ("tag", "dl_vlan")):
        if name in given:
            fields.append(f"{field}={given[name]}")
    if "tcp_flags" in given:
        value, mask = given["tcp_flags"]
        flags = "".join(f"{'+' if value & bit else '-'}{name}" for name, bit in _FLAGS if mask & bit)
        fields.append(f"tcp_flags={flags}")
    return fields


def _actions(actions: Iterable[Any], goto: int | None, copies: bool) -> str:
    words = []
    for action in actions:
        if _is(action, "Output"):
            words.append(f"output:{action['Output']}")
        elif _is(action, "Group"):
            words.append(f"group:{action['Group']}")
        elif _is(action, "SetTag"):
            words.append(f"push_vlan:0x8100,set_field:{action['SetTag'] | 0x1000}->vlan_vid")
        elif action == "PopTag":
            words.append("pop_vlan")
        elif action == "Copy" and copies:
            words.append("CONTROLLER:128")
    if goto is not None:
        words.append(f"goto_table:{goto}")
    return ",".join(words) or "drop"


def _is(action: object, name: str) -> bool:
    return isinstance(action, dict) and name in action

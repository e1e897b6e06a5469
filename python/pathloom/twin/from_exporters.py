"""Flow records from the files of exporters: IPFIX messages, or IPFIX and sFlow datagrams in a pcap file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from pathloom.errors import bad_input
from pathloom.twin.exported import Damaged, Exported, udp_payloads
from pathloom.twin.ipfix import Ipfix
from pathloom.twin.sflow import Sflow

IPFIX, SFLOW = b"\x00\x0a", b"\x00\x00\x00\x05"
PCAP = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
MOST_BYTES = 2**62
PCAPNG = b"\x0a\x0d\x0d\x0a"


def is_exported(beginning: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return beginning[:2] == IPFIX or beginning[:4] in (*PCAP, PCAPNG)


def read_exported(path: Path, content: bytes) -> tuple[pl.DataFrame, list[str]]:
    """The flows of a file, with the columns of `COLUMNS` of `from_records`, and notes. Raises `PathloomError`."""
    try:
        flows, notes = flows_of(content)
    except Damaged as error:
        raise bad_input(
            f"--records `{path}`: {error}; expected IPFIX messages, or a pcap file with IPFIX or sFlow"
        ) from None
    if not flows:
        raise bad_input(f"--records `{path}`: has no flows; expected IPFIX records or sFlow samples of IPv4 packets")
    return _frame(flows), notes


def flows_of(content: bytes) -> tuple[list[Exported], list[str]]:
    """The flows of a file, and notes. Raises `Damaged`, and nothing else."""
    ipfix, sflow = Ipfix(), Sflow()
    if content[:4] == PCAPNG:
        raise Damaged("is a pcapng file; `editcap -F pcap IN OUT` makes a pcap file of it")
    if content[:4] in PCAP:
        for at_s, datagram in udp_payloads(content):
            if datagram[:2] == IPFIX:
                ipfix.read_all(datagram)
            elif datagram[:4] == SFLOW:
                sflow.read(at_s, datagram)
    else:
        ipfix.read_all(content)
    flows, notes = [], []
    for found in (ipfix.found, sflow.found):
        own = found.flows()
        flows.extend(own)
        notes.extend(found.notes(len(found.records) - len(own)))
    return flows, notes


def _frame(flows: Iterable[Exported]) -> pl.DataFrame:
    rows = [
        (one.start_s, one.key[0], one.key[1], min(max(round(one.bytes), 1), MOST_BYTES), one.end_s) for one in flows
    ]
    schema = {"start_s": pl.Float64, "src": pl.String, "dst": pl.String, "bytes": pl.Int64, "end_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("start_s")

"""Listens as an OpenFlow 1.3 controller until a number of switches have sent their datapath ids and ports.

Usage: listener.py PORT SWITCHES FILE; the file gets JSON: ports by datapath id.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60.0
"""Longest wait for the next connection, and for an answer."""
VERSION, HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 4, 0, 2, 3, 5, 6
MULTIPART_REQUEST, MULTIPART_REPLY, PORT_DESCRIPTION = 18, 19, 13


def message(kind: int, body: bytes = b"", xid: int = 1) -> bytes:
    return struct.pack(">BBHI", VERSION, kind, 8 + len(body), xid) + body


def read(session: socket.socket) -> tuple[int, int, int, bytes]:
    head = session.recv(8, socket.MSG_WAITALL)
    version, kind, length, xid = struct.unpack(">BBHI", head)
    return version, kind, xid, session.recv(length - 8, socket.MSG_WAITALL)


def ask(session: socket.socket) -> tuple[str, dict[int, str]]:
    """Returns the datapath id of a switch, and the name of each port by its number."""
    session.settimeout(PATIENCE_S)
    version, kind, _, _ = read(session)
    assert (version >= VERSION, kind) == (True, HELLO)
    session.sendall(message(HELLO) + message(FEATURES_REQUEST))
    session.sendall(message(MULTIPART_REQUEST, struct.pack(">HH4x", PORT_DESCRIPTION, 0)))
    dpid = ""
    ports: dict[int, str] = {}
    while not dpid or not ports:
        version, kind, xid, body = read(session)
        assert version == VERSION
        if kind == ECHO_REQUEST:
            session.sendall(message(ECHO_REPLY, body, xid))
        elif kind == FEATURES_REPLY:
            dpid = body[:8].hex()
        elif kind == MULTIPART_REPLY:
            for place in range(8, len(body), 64):
                (number,) = struct.unpack_from(">I", body, place)
                ports[number] = body[place + 16 : place + 32].rstrip(b"\0").decode()
    return dpid, ports


def main() -> None:
    port, wanted, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    found: dict[str, dict[int, str]] = {}

    def serve(session: socket.socket) -> None:
        # A client that only checks whether somebody listens sends nothing.
        with session, suppress(struct.error, OSError):
            dpid, ports = ask(session)
            found[dpid] = ports

    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(0.5)
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < wanted:
            with suppress(TimeoutError):
                # A session that waits must not keep others waiting.
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
                deadline = time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                sys.exit(f"only {len(found)} of {wanted} switches have been heard: {sorted(found)}")
    file.write_text(json.dumps(found), encoding="ascii")


if __name__ == "__main__":
    main()

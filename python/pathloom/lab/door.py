"""The API of a lab's controllers at the loopback interface of the machine, for people and their programs.

A controller serves its API inside its own namespace. For each controller, a process listens at a port of the machine,
and passes all bytes on to the API. This module is also the program of that process.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pathloom.errors import ToolError, bad_input, reason
from pathloom.lab import system

ADDRESS = "127.0.0.1:6680"
"""Address of the API in the namespace of a lab's only controller."""
OUTSIDE = "127.0.0.1"
FIRST_PORT, MOST_PORTS = 6680, 100
"""Ports of the machine; several labs, and other controllers, may have the first ones."""
TOKENS = "tokens"
"""File in the run directory with the token of the API."""
_RECORD = "api.json"
"""File in the run directory with the ports and what they lead to; it exists if the lab has doors."""
_PROGRAM = "pathloom.lab.door"
_CHUNK_BYTES = 65536


def prepare(directory: Path) -> Path:
    """Makes the token of the API. Returns its file."""
    tokens = directory / TOKENS
    if not tokens.exists():
        tokens.touch(mode=0o600)
        tokens.write_text(f"operate lab {secrets.token_hex(24)}\n", encoding="ascii")
    return tokens


def table(directory: Path) -> list[str]:
    """Returns the lines of the configuration of a lab's only controller; none in a lab without a token."""
    tokens = directory / TOKENS
    return ["[api]", f'address = "{ADDRESS}"', f"tokens = {json.dumps(str(tokens))}"] if tokens.exists() else []


def open_doors(directory: Path, apis: Sequence[tuple[str, str]]) -> None:
    """Opens a port of the machine for each API, given as namespace and address. Raises `PathloomError`, `ToolError`."""
    doors: list[dict[str, Any]] = []
    for namespace, address in apis:
        with closing(_listen(range(FIRST_PORT, FIRST_PORT + MOST_PORTS))) as listening:
            doors.append({"port": listening.getsockname()[1], "namespace": namespace, "address": address})
            _start(directory, listening, doors[-1])
    (directory / _RECORD).write_text(json.dumps(doors), encoding="utf-8")


def reopen(directory: Path) -> None:
    """Opens the doors of a lab that have ended, at their ports. Raises `PathloomError`, `ToolError`."""
    for door in _doors(directory):
        if _running(directory, door) is None:
            with closing(_listen([door["port"]])) as listening:
                _start(directory, listening, door)


def urls(directory: Path) -> str | None:
    """Returns the URL of the API, or those of several controllers with commas between them; None without doors."""
    return ",".join(f"http://{OUTSIDE}:{door['port']}" for door in _doors(directory)) or None


def row(directory: Path) -> dict[str, Any] | None:
    """Returns the state of the doors for `lab status`; None in a lab without doors."""
    doors = _doors(directory)
    if not doors:
        return None
    running = all(_running(directory, door) is not None for door in doors)
    return {"url": urls(directory), "tokens": str(directory / TOKENS), "open": running}


def _doors(directory: Path) -> list[dict[str, Any]]:
    with suppress(OSError, ValueError):
        found: list[dict[str, Any]] = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
        return found
    return []


def _listen(ports: Sequence[int]) -> socket.socket:
    problem: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((OUTSIDE, port))
        except OSError as error:
            problem = error
    which = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise bad_input(f"--api: {which} of {OUTSIDE}: {reason(problem) if problem else 'none'}")


def _start(directory: Path, listening: socket.socket, door: Mapping[str, Any]) -> None:
    """Starts a door inside the namespace, with a socket that listens outside."""
    command = [*system.within(door["namespace"]), sys.executable, "-P", "-m", _PROGRAM]
    words = [str(listening.fileno()), door["address"], str(directory)]
    log = directory / "api.log"
    process = system.start_daemon([*command, *words], log, directory, keep_open=[listening.fileno()])
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.05)
        raise ToolError(f"--api: {system.last_line(log) or f'the forwarder ended with {process.returncode}'}")


def _running(directory: Path, door: Mapping[str, Any]) -> int | None:
    # The last word of a command line ends with a zero byte too.
    wanted = [door["address"].encode(), os.fsencode(directory), b""]
    found = system.process_where(lambda words: _PROGRAM.encode() in words and words[-3:] == wanted)
    return None if found is None or system.is_over(found) else found


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await source.read(_CHUNK_BYTES):
            target.write(content)
            await target.drain()
        target.write_eof()


async def _pass_on(address: tuple[str, int], came: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
    """Joins a client with the API. If no controller answers, the client's connection is closed."""
    with suppress(OSError):
        answers, there = await asyncio.open_connection(*address)
        with closing(there):
            await asyncio.gather(_copy(came, there), _copy(answers, back))
    back.close()


async def _serve(descriptor: int, address: tuple[str, int]) -> None:
    server = await asyncio.start_server(partial(_pass_on, address), sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


def main(words: Sequence[str]) -> None:
    """Serves until the process is ended: descriptor of the listening socket, ADDRESS:PORT of the API."""
    host, _, port = words[1].rpartition(":")
    asyncio.run(_serve(int(words[0]), (host, int(port))))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Serves a scheme in Python at a Unix socket: `python -m pathloom.scheme_socket SOCKET FILE.py:CLASS`.

For a controller with `[scheme] socket`, which does not start the process of its scheme itself, because systemd or a
container does (docs/python-schemes.md). Each connection gets a process of its own (`pathloom.scheme_process`), as from
a controller that starts it: it reads the file as it is now, and ends with the connection.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

# How long a process may take to end after its controller has gone. One that hangs in the scheme would never end.
GRACE_S = 2.0
# Owner and group may connect.
UMASK = 0o117


def bind(path: Path) -> socket.socket:
    """Listens at a path, and replaces a socket at which nobody does. Raises `OSError` if the path is in use."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as other:
            try:
                other.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(UMASK)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen()
    return listener


class Attendance:
    """The processes of all connections."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.running: set[int] = set()

    def attend(self, connection: socket.socket) -> None:
        """Runs a process for a connection. It ends with the connection, and the connection with it."""
        command = [sys.executable, "-m", "pathloom.scheme_process", self.spec]
        end = connection.fileno()
        with connection, subprocess.Popen(command, stdin=end, stdout=end, process_group=0) as child:
            self.running.add(child.pid)
            ended = os.pidfd_open(child.pid)
            wait_for({end: select.POLLRDHUP, ended: select.POLLIN})
            wait_for({ended: select.POLLIN}, GRACE_S)
            os.close(ended)
            # Nobody has waited for it, so no other process has its number.
            self.end(child.pid)

    def end(self, leader: int) -> None:
        """Kills a process and all that it has started."""
        self.running.discard(leader)
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)

    def end_all(self) -> None:
        """Kills all processes."""
        for leader in tuple(self.running):
            self.end(leader)


def wait_for(events: dict[int, int], timeout_s: float | None = None) -> None:
    """Waits until a file has one of its events, or the time is over."""
    poll = select.poll()
    for file, mask in events.items():
        poll.register(file, mask)
    poll.poll(None if timeout_s is None else 1000 * timeout_s)


def serve(listener: socket.socket, spec: str) -> None:
    """Accepts controllers, until this process is interrupted. Then all processes are killed."""
    attendance = Attendance(spec)
    try:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=attendance.attend, args=(connection,), daemon=True).start()
    finally:
        attendance.end_all()


def main(words: list[str]) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit code."""
    if len(words) != 2:
        sys.stderr.write("usage: python -m pathloom.scheme_socket SOCKET FILE.py:CLASS:key=value\n")
        return 2
    path, spec = Path(words[0]), words[1]
    try:
        listener = bind(path)
    except OSError as error:
        sys.stderr.write(f"{path}: {error.strerror or error}; expected a path at which nobody listens\n")
        return 1
    # As an interrupt from the keyboard, so that the processes are killed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(listener, spec)
    except KeyboardInterrupt:
        path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Access to the kernel and its tools: namespaces, processes, batches of `ip` and `tc`."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import AnyStr, TypeVar

from pathloom.errors import ToolError, bad_input, reason
from pathloom.waiting import SYSTEM, Clock, await_event

Value = TypeVar("Value")

NETNS = Path("/run/netns")
MARK = "PATHLOOM_LAB"
"""Environment variable of every process that belongs to a lab; its value is the lab's run directory."""
TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-switch",
}
"""Tools that a lab needs, with their Debian packages."""
ROUTER_TOOLS = {tool: TOOLS[tool] for tool in ("ip", "tc")}
"""Tools that a lab of routers needs, with their Debian packages."""

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals besides SIGINT (Ctrl-C) that end a process."""
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
_MS_REC, _MS_SLAVE, _MS_BIND = 0x4000, 1 << 19, 0x1000
_SCHED_SETATTR, _SCHED_GETATTR = (274, 275) if platform.machine() == "aarch64" else (314, 315)
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""Size, policy, flags, nice value, priority, run time, deadline, period (linux/sched/types.h)."""
SLICE_NS = 100_000
GROUP_NICE = -10
MOST_DAEMONS = 4
"""Largest default number of daemons. The hosts of a lab need processors too."""
_libc = ctypes.CDLL(None, use_errno=True)


def check_machine(tools: Mapping[str, str] = TOOLS) -> None:
    """Raises `PathloomError` if a lab cannot be built on this machine. The message says what to do."""
    if os.geteuid() != 0:
        raise bad_input("lab: needs root, for namespaces and switches; run it with sudo, or as root")
    for tool, package in tools.items():
        if find_tool(tool) is None:
            raise bad_input(f"lab: `{tool}` is missing; on Debian: apt-get install {package}")


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP interrupt this process as Ctrl-C does, so that it removes what it has built.

    Signals that are ignored, as under `nohup`, stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, signal.default_int_handler) for one in ENDING if not is_ignored(one)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C, SIGTERM and SIGHUP until the block has ended; then `KeyboardInterrupt` is raised."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signals = [one for one in (signal.SIGINT, *ENDING) if not is_ignored(one)]
    before = [signal.signal(one, lambda number, _frame: came.append(number)) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)
    if came:
        raise KeyboardInterrupt


def is_ignored(number: int) -> bool:
    """Returns whether this process ignores a signal."""
    return signal.getsignal(number) is signal.SIG_IGN


def find_tool(name: str) -> str | None:
    """Returns the path of a tool. The directories of administrators' tools are searched too, whatever PATH says."""
    places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


def run_tool(
    arguments: Sequence[str | Path],
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    timeout_s: float = 60.0,
) -> str:
    """Runs a tool to its end, with `text` as its input; returns what it printed.

    The tool gets its own session, so that Ctrl-C at the terminal does not end it. The descriptors `keep_open` stay open
    in it. Raises `ToolError` with the first line of its error output.
    """
    name = str(arguments[0])
    command = [find_tool(name) or name, *map(str, arguments[1:])]
    process: subprocess.Popen[str] | None = None
    try:
        process = begin(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=tuple(keep_open),
            )
        )
        stdout, stderr = process.communicate(text if text is not None else "", timeout_s)
    except subprocess.TimeoutExpired:
        raise ToolError(f"`{name}` did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise ToolError(f"`{name}` could not be started: {reason(error)}") from None
    finally:
        # After an interrupt, the tool must not go on building what is removed next.
        if process is not None and process.returncode is None:
            _kill(process)
    if process.returncode != 0:
        said = [line for line in stderr.splitlines() if line.strip() and not line.startswith("Command failed")]
        raise ToolError(f"`{name}`: {said[0] if said else f'ended with {process.returncode}'}")
    return stdout


def begin(start: Callable[[], subprocess.Popen[AnyStr]]) -> subprocess.Popen[AnyStr]:
    """Starts a process. After an interrupt meanwhile it does not run, because nobody would know it."""
    started: list[subprocess.Popen[AnyStr]] = []
    try:
        with uninterrupted():
            started.append(start())
    except BaseException:
        for process in started:
            _kill(process)
        raise
    return started[0]


def _kill(process: subprocess.Popen[AnyStr]) -> None:
    """Kills a process, waits until it has ended, and closes its pipes."""
    with uninterrupted(), process:
        process.kill()


def batch(tool: str, namespace: str | None, lines: Iterable[str], keep_open: Sequence[int] = ()) -> None:
    """Runs many lines of `ip` or `tc` in one process. Raises `ToolError`."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        within = ["-n", namespace] if namespace is not None else []
        run_tool([tool, *within, "-batch", "-"], text, keep_open=keep_open)


def within(namespace: str) -> list[str]:
    """The beginning of a command that runs in a network namespace."""
    return [find_tool("ip") or "ip", "netns", "exec", namespace]


def start_daemon(
    command: Sequence[str | Path],
    log: Path,
    directory: Path,
    stdout: int | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a program of the lab in `directory`, whose output is added to `log`, except for `stdout` if that is given.

    It gets its own session, so that Ctrl-C at the terminal does not end it, and the mark by which it is found. The
    descriptors `keep_open` stay open in it.
    """
    with log.open("ab") as out:
        return begin(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=out,
                env={**os.environ, MARK: str(directory)},
                start_new_session=True,
                pass_fds=tuple(keep_open),
            )
        )


def give_priority(process: int) -> None:
    """Lets all threads of a process run before ordinary ones, if the machine permits it.

    A real fabric does not wait because programs on its hosts, or others on this machine, are busy. Short time slices
    and a large weight have almost the effect of the real-time class. But they are not paused for a twentieth of each
    second, as that class is. If the kernel has no time slices per thread (before 6.12), the threads get the real-time
    class. A nice value counts only within a group of processes, and the group has its own nice value. With
    `GROUP_NICE`, ordinary programs get a tenth of a processor that a switch would otherwise take completely. A switch
    takes a processor completely long before it reaches its limit.
    """
    for entry in os.scandir(f"/proc/{process}/task"):
        thread = int(entry.name)
        wanted = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, -20, 0, SLICE_NS, 0, 0)
        _libc.syscall(_SCHED_SETATTR, thread, wanted, 0)
        found = ctypes.create_string_buffer(_SCHED_ATTR.size)
        asked = _libc.syscall(_SCHED_GETATTR, thread, found, _SCHED_ATTR.size, 0) == 0
        if not asked or _SCHED_ATTR.unpack(found.raw)[5] != SLICE_NS:
            with suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(GROUP_NICE), encoding="ascii")


def stolen_s() -> float:
    """Returns the processor time, in seconds since the start, that a virtual machine's host gave to others.

    It is the sum over all processors; 0 if the kernel does not report it.
    """
    try:
        total = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        return int(total[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def usual_daemons() -> int:
    """Returns the default number of Open vSwitch daemons over which a lab's switches are spread."""
    return min(MOST_DAEMONS, len(os.sched_getaffinity(0)))


def share_processors(name: str, count: int) -> list[tuple[int, set[int]]]:
    """Returns, for each forwarding thread of a lab's switches, its processor and the processors that receive for it.

    Work that interrupts a forwarding thread slows it down. So nothing is received on its own processor, and if possible
    nothing on the processor of another such thread. If there is only one processor, all share it. Labs that run at the
    same time begin with different processors, chosen by their names.
    """
    processors = sorted(os.sched_getaffinity(0))
    first = zlib.crc32(name.encode())
    own = [processors[(first + number) % len(processors)] for number in range(count)]
    free = set(processors) - set(own)
    return [(one, free or set(processors) - {one} or {one}) for one in own]


def set_namespace(descriptor: int) -> None:
    """Moves the calling thread into a network namespace. Raises `OSError`."""
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def inside(namespace: str, act: Callable[[], Value]) -> Value:
    """Calls `act` on a thread that has entered a network namespace, and returns what it returns or raises."""
    results: list[Value] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with (NETNS / namespace).open("rb") as file:
                set_namespace(file.fileno())
            results.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name=f"in-{namespace}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def write_sysctls(values: Mapping[str, str]) -> None:
    """Sets sysctls of the calling thread's network namespace. Raises `OSError` with the name of the file."""
    for name, value in values.items():
        Path("/proc/sys", *name.split(".")).write_text(value, encoding="ascii")


def enter_for_good(namespace: str, files: Iterable[Path], name: str | None = None) -> None:
    """Moves this process into a namespace, with its own mounts, in which `files` replace those of /etc by their names.

    With `name`, the process also has this host name.

    The process cannot return, and should become another program. Raises `OSError`.
    """
    with (NETNS / namespace).open("rb") as file:
        set_namespace(file.fileno())
    if _libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUTS if name is not None else 0)) != 0:
        raise OSError(ctypes.get_errno(), "cannot unshare mounts and host name")
    if name is not None:
        socket.sethostname(name)
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    for own in files:
        replaced = Path("/etc", own.name)
        if own.exists() and replaced.exists():
            _mount(str(own), str(replaced), None, _MS_BIND)
    # Programs that read /sys/class/net should see the namespace's interfaces.
    if _libc.umount2(b"/sys", 2) == 0:
        _mount("pathloom", "/sys", "sysfs", 0)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    if _libc.mount(*encoded, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def namespaces_of(prefix: str) -> list[str]:
    """Returns the names of the namespaces that begin with this prefix."""
    try:
        return sorted(entry.name for entry in NETNS.iterdir() if entry.name.startswith(prefix))
    except FileNotFoundError:
        return []


def processes_of(run_directory: Path, prefix: str) -> list[int]:
    """Returns the processes with the mark of a lab or in its namespaces, except this process and its parents."""
    mark = f"{MARK}={run_directory}".encode()
    inodes = set()
    for name in namespaces_of(prefix):
        try:
            status = (NETNS / name).stat()
            inodes.add((status.st_dev, status.st_ino))
        except OSError:
            continue
    ancestors = _ancestors()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) in ancestors:
            continue
        try:
            status = Path(f"/proc/{entry.name}/ns/net").stat()
            within = (status.st_dev, status.st_ino) in inodes
            if within or mark in Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def process_where(is_meant: Callable[[list[bytes]], bool]) -> int | None:
    """Returns the number of a process whose command line is the one that is meant; None if there is none."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                try:
                    words = Path(f"/proc/{entry.name}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue  # The process has ended meanwhile.
                if is_meant(words):
                    return int(entry.name)
    return None


def _ancestors() -> set[int]:
    line, process = set(), os.getpid()
    while process > 0 and process not in line:
        line.add(process)
        try:
            process = int(_stat(process)[1])
        except OSError:
            break
    return line


def end_processes(run_directory: Path, prefix: str, patience_s: float = 10.0, clock: Clock = SYSTEM) -> None:
    """Kills every process of a lab. Raises `ToolError` if one does not end within `patience_s`."""
    left: list[int] = []

    def are_over() -> bool:
        left[:] = [process for process in processes_of(run_directory, prefix) if not is_over(process)]
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return not left

    if not await_event(are_over, patience_s, 0.01, clock):
        raise ToolError(f"process {left[0]} does not end")


def end(process: int, patience_s: float = 10.0, clock: Clock = SYSTEM) -> None:
    """Kills a process, and returns when it has ended. Raises `ToolError` if it does not within `patience_s`."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    if not await_event(lambda: is_over(process), patience_s, 0.001, clock):
        raise ToolError(f"process {process} does not end")


def last_line(file: Path) -> str | None:
    """Returns the last line of a log; None if it is empty or missing."""
    try:
        said = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return None
    return said[-1] if said else None


def await_start(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], patience_s: float, every_s: float
) -> bool:
    """Waits until a process is ready or has ended. Returns whether it is ready."""
    ready = False

    def is_decided() -> bool:
        nonlocal ready
        ready = is_ready()
        return ready or process.poll() is not None

    await_event(is_decided, patience_s, every_s)
    return ready


def _stat(process: int) -> list[str]:
    """Returns the fields of a process from its state on. Raises `OSError`."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()


def started_at(process: int) -> int:
    """Returns when a process started, in ticks since the machine did; 0 if there is no such process."""
    try:
        return int(_stat(process)[19])
    except OSError:
        return 0


def is_over(process: int) -> bool:
    """Returns whether a process has ended, even if its entry is left because its exit code was not collected."""
    try:
        return _stat(process)[0] in "ZX"
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ESRCH)


def delete_namespaces(names: Iterable[str]) -> None:
    """Deletes namespaces, including incomplete ones."""
    for name in names:
        path = NETNS / name
        # A lazy unmount (MNT_DETACH) works even if a process still uses the mount.
        while _libc.umount2(str(path).encode(), 2) == 0:
            pass
        path.unlink(missing_ok=True)

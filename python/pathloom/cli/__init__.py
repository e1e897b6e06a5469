"""The command line. This module imports nothing heavy, so that Ctrl-C is handled properly from the start."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from types import FrameType

from pathloom.cli.encoding import make_streams_forgiving
from pathloom.cli.exits import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_TERMINATED, Interrupted

TRACEBACK_VARIABLE = "PATHLOOM_TRACEBACK"
"""Environment variable; if it is set, the traceback of an error inside Pathloom is shown."""


def main() -> None:
    """Runs the command line and exits: 0, 2 on bad input, 130 after Ctrl-C, 143 after SIGTERM, 1 on another error."""
    terminated = threading.Event()

    def terminate(_number: int, _frame: FrameType | None) -> None:
        terminated.set()
        raise KeyboardInterrupt  # Finished runs are kept, as after Ctrl-C.

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)
    sys.unraisablehook = _interrupt_again
    code = run(sys.argv[1:])
    if code == EXIT_INTERRUPTED:
        code = EXIT_TERMINATED if terminated.is_set() else code
        # If the interrupt came during an import, `sys.exit` would end Python by SIGINT instead of with this code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _interrupt_again(ignored: sys.UnraisableHookArgs) -> None:
    """Repeats a Ctrl-C that came during a `__del__` or a callback of Python's imports, where exceptions end nothing."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    # Not at once: it would come during this function, and be lost again.
    again = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def run(arguments: list[str]) -> int:
    """Runs one command line and returns the exit code. An error is printed on stderr."""
    make_streams_forgiving()
    try:
        return _carry_out(arguments)
    except KeyboardInterrupt:
        print("pathloom: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Interrupted as interrupted:
        print(f"pathloom: {interrupted}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output is gone.
        _discard_output()
        return EXIT_ERROR
    except Exception as error:
        return _unexpected(error)
    except BaseException as error:
        # A panic in the Rust core is a BaseException, but not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        return _unexpected(error)


def _carry_out(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # The commands are not needed, and their import takes half of the time.
        from pathloom.build import build_text

        print(build_text(), flush=True)
        return 0
    from pathloom.cli.app import carry_out

    return carry_out(arguments)


def _discard_output() -> None:
    """Sends what is left of standard output to /dev/null when Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: BaseException) -> int:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        print("pathloom: cannot write the output: no space left on device", file=sys.stderr)
        _discard_output()
        return EXIT_ERROR
    if os.environ.get(TRACEBACK_VARIABLE):
        raise error
    text = " ".join(str(error).split()) or type(error).__name__
    print(
        f"pathloom: error inside Pathloom: {type(error).__name__}: {text} "
        f"(please report it; {TRACEBACK_VARIABLE}=1 shows the traceback)",
        file=sys.stderr,
    )
    return EXIT_ERROR

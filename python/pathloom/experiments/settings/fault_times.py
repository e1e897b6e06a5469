"""Times of the faults in settings."""

from __future__ import annotations

from pathloom import _core


def fault_end_s(fault: str) -> float:
    """Time of the last event of a fault: cables may flap.

    >>> fault_end_s("1s:flap:c0:100ms/400ms/3"), fault_end_s("2s:down:c0")
    (2.1, 2.0)
    """
    at_s = fault_time_s(fault)
    rhythm = [part.strip() for part in fault.rpartition(":")[2].split("/")]
    if fault.split(":")[1].strip() != "flap" or len(rhythm) != len(("down", "up", "times")):
        return at_s
    down_s, up_s = map(_core.parse_time_s, rhythm[:2])
    return round(at_s + (int(rhythm[2]) - 1) * (down_s + up_s) + down_s, 9)


def fault_time_s(fault: str) -> float:
    """Time of a fault such as `10s:down:c0`.

    >>> fault_time_s("300ms:down:e0_0-a0_1")
    0.3
    """
    return _core.parse_time_s(fault.partition(":")[0].strip())

"""The kinds of routers that a lab can have, and what they can carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.experiments.settings.model import ROUTED_SWITCHES, LabSettings
from pathloom.lab.routed.central import is_bound, verdict
from pathloom.lab.routed.frr import check_installed
from pathloom.quantities import listed

KERNEL, FRR = "kernel", "frr"
SCHEMES = ("spt", "ecmp", "mptcp")
"""Schemes whose default routes are routes by destination."""
WEIGHTED = "wcmp"
"""Scheme whose next hops have weights. BGP as it is set up here does not carry them."""


@dataclass(frozen=True)
class RouterSettings:
    """What the switches of a lab of routers are."""

    kind: str
    """`kernel`: static routes. `frr`: eBGP by FRR."""
    bfd: bool
    """Whether BFD watches the sessions of BGP."""
    scheme: str
    """`ecmp`, `mptcp` (routers as under ecmp, hosts with MPTCP), `wcmp`, or `spt`: one path to each destination."""

    @property
    def routes(self) -> str:
        """Name of the routes that the scheme has: `one` path, `equal` next hops, or `weighted` ones."""
        name = _core.scheme_name(self.scheme)
        return "one" if name == "spt" else "weighted" if name == WEIGHTED else "equal"

    @property
    def one_path(self) -> bool:
        """Whether each destination has one path only."""
        return self.routes == "one"

    @classmethod
    def of(cls, switches: str, scheme: str) -> Self:
        """Reads `kernel`, `frr` or `frr:bfd=off`. Raises `PathloomError` for a scheme that routers cannot carry.

        >>> RouterSettings.of("frr:bfd=off", "ecmp")
        RouterSettings(kind='frr', bfd=False, scheme='ecmp')
        """
        if switches not in ROUTED_SWITCHES:
            raise bad_input(f"switches `{switches}`: expected one of {', '.join(ROUTED_SWITCHES)}")
        check_scheme(switches, scheme)
        return cls._of(switches, scheme)

    @classmethod
    def of_run(cls, switches: str, scheme: str) -> Self:
        """As `of`, for the routers of a run. Under a scheme whose paths hosts choose, routers run ecmp."""
        return cls._of(switches, "ecmp") if is_bound(scheme) else cls.of(switches, scheme)

    @classmethod
    def _of(cls, switches: str, scheme: str) -> Self:
        kind, _, keys = switches.partition(":")
        return cls(kind, kind == FRR and keys != "bfd=off", scheme)


def check_scheme(switches: str, scheme: str) -> None:
    """Raises `PathloomError` if routers cannot carry a scheme."""
    name = _core.scheme_name(scheme)
    carried = SCHEMES if switches.startswith(FRR) else (*SCHEMES, WEIGHTED)
    if name in carried:
        return
    if is_bound(scheme):
        raise bad_input(
            f"scheme `{name}`: routers ({switches}) carry it by the source ports of connections, which only `pathloom "
            "lab run` and `compare` choose; put the lab up with --scheme ecmp"
        )
    row = verdict(scheme)
    why = f"; source ports cannot carry it either: {row['why']}" if row["why"] else ""
    raise bad_input(
        f"scheme `{name}`: routers ({switches}) choose paths by destination and hash, so they carry "
        f"{listed(carried)} only{why}; leave switches= out to run it on Open vSwitch"
    )


def check_routed(options: LabSettings, schemes: Iterable[str], has_faults: bool = False) -> None:
    """Raises `PathloomError` if runs with these settings ask routers for what they cannot do."""
    if options.switches == "ovs":
        return
    if options.controller != "none" or options.daemons is not None:
        raise bad_input(
            f"--lab switches={options.switches}: routers have neither an OpenFlow controller nor daemons of Open "
            "vSwitch; leave controller= and daemons= out"
        )
    for scheme in schemes:
        if not is_bound(scheme):
            check_scheme(options.switches, scheme)
        elif not options.pinned:
            raise bad_input(f"--lab pin=off: scheme `{scheme}` chooses source ports on routers; leave pin=off out")
        elif has_faults:
            raise bad_input(
                f"--fault: on routers, source ports name the paths of scheme `{scheme}`, and runs do not find them "
                "again after a fault; run ecmp, or leave switches= out"
            )
    if options.switches.startswith(FRR):
        check_installed(options.switches != "frr:bfd=off")

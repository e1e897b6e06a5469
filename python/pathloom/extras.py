"""Libraries that only some features use. They are extras of the package: `pip install 'pathloom[plot]'`."""

from __future__ import annotations

from importlib.util import find_spec

from pathloom.errors import bad_input

EXTRAS = {
    "plot": ("matplotlib", "networkx"),
    "optimum": ("highspy",),
    "networkx": ("networkx",),
    "cluster": ("distributed",),
    "dns": ("dnspython",),
    "notebook": ("anywidget",),
}
"""The libraries of each extra, as in pyproject.toml."""
_MODULES = {"dnspython": "dns"}
"""The modules of libraries whose name is another one."""
NO_PICTURES = "matplotlib is not installed, so there are no pictures: pip install 'pathloom[plot]'"


def is_installed(extra: str) -> bool:
    """Whether all libraries of an extra can be imported."""
    return all(find_spec(_MODULES.get(library, library)) is not None for library in EXTRAS[extra])


def need(extra: str, what: str) -> None:
    """Raises `PathloomError` if an extra is not installed. `what` is the option or function that needs it.

    >>> need("plot", "--plots")
    """
    if not is_installed(extra):
        libraries = " and ".join(EXTRAS[extra])
        raise bad_input(f"{what}: needs {libraries}; install with pip install 'pathloom[{extra}]'")

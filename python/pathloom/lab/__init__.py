"""The lab: any fabric as network namespaces and a private Open vSwitch, on this machine.

`blueprint` says what a fabric becomes; `system` is the only door to the kernel's tools; `links`, `hosts`, `switches`,
`daemons` and `rules` build; `lab` puts a lab up, finds it again and takes it down; `agent` carries real transfers;
`runs` makes runs of the same experiments as the simulator's. Nothing outside a lab's own namespaces and run directory
is changed.
"""

"""The lab: any fabric as network namespaces and a private Open vSwitch, on this machine.

`blueprint` maps a fabric to names and addresses; `system` runs the kernel's tools; `links`, `hosts`, `switches`,
`daemons` and `rules` build the parts; `lab` puts a lab up, finds it again and takes it down; `agent` carries real
transfers; `runs` carries out the same experiments as the simulator. Nothing outside the namespaces and the run
directory of a lab is changed.
"""

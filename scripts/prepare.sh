#!/usr/bin/env bash
# Installs the tools that a target needs: `prepare.sh build`, and `hostd`, `package`, `web`, `bench`, `cluster`, `ns3`,
# `lab`, `page` or `judges`.
# Debian packages are installed only if they are missing, and only as root; otherwise the command to type is printed.
# This script never downloads Rust.
set -euo pipefail

say() { printf 'pathloom: %s\n' "$*" >&2; }
give_up() { say "$*"; exit 1; }

need_packages() {  # need_packages "what for" package...
    local what=$1; shift
    command -v apt-get >/dev/null || give_up "$what is missing; on Debian it comes with: $*"
    if [ "$(id -u)" != 0 ]; then
        give_up "$what is missing; install it with: sudo apt-get install $*"
    fi
    say "installing $* ($what)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$@" >&2 </dev/null && return
    apt-get update -q >&2 </dev/null
    apt-get install -y -q --no-install-recommends "$@" >&2 </dev/null || give_up "apt-get could not install $*"
}

need_frr() {  # Debian starts the services that it installs. These daemons run in namespaces of a lab only.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ] && [ "$(id -u)" = 0 ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    need_packages "FRR, the routing daemons of the lab's routers" frr
    if command -v systemctl >/dev/null; then
        systemctl disable frr >&2 </dev/null || say "frr.service could not be disabled; it may start with the machine"
    fi
}

need_etcd() {
    command -v etcd >/dev/null || need_packages "etcd, by which controllers choose the one that leads" etcd-server
    command -v etcdctl >/dev/null || need_packages "etcdctl, which saves and restores etcd" etcd-client
}

at_least() {  # at_least 1.85 1.95.0
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

need_python() {
    local python=${PYTHON:-python3} version
    command -v "$python" >/dev/null || need_packages "Python" python3 python3-venv
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    at_least 3.11 "$version" ||
        give_up "Python $version is too old; 3.11 or later is needed. Name another: make PYTHON=python3.12 ..."
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need_packages "Python's venv module" python3-venv
}

need_rust() {
    local least candidate version
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        give_up "cargo is in ~/.cargo/bin, but not on the PATH; type: . ~/.cargo/env"
    fi
    if ! command -v cargo >/dev/null && command -v apt-cache >/dev/null; then
        candidate=$(apt-cache policy cargo | sed -n 's/^ *Candidate: *\([0-9.]*\).*/\1/p')
        if [ -n "$candidate" ] && at_least $least "$candidate"; then
            need_packages "Rust" cargo
        fi
    fi
    command -v cargo >/dev/null ||
        give_up "Rust is missing, and this Debian's own is too old: install it with rustup, see https://rustup.rs"
    version=$(cargo --version | cut -d' ' -f2)
    at_least $least "$version" ||
        give_up "cargo $version is too old; $least or later is needed: install it with rustup, see https://rustup.rs"
}

case ${1:-} in
build)
    command -v cc >/dev/null || need_packages "a C compiler, for linking" build-essential
    need_python
    need_rust
    ;;
hostd)
    # Without clang, the agent is built too, but it reads the kernel's socket list and neither paces nor holds.
    compgen -c | grep -Ex 'clang(-[0-9]+)?' >/dev/null || (need_packages "clang, for BPF programs of the host agent and the live switch" clang) ||
        say "continuing without clang: the host agent neither paces nor holds, and the live switch does not start"
    ;;
package)
    compgen -c | grep -Ex 'clang(-[0-9]+)?' >/dev/null || need_packages "clang, for BPF programs of the host agent and the live switch" clang
    command -v systemd-analyze >/dev/null || need_packages "systemd-analyze, which checks the units" systemd
    ;;
web)
    command -v curl >/dev/null || need_packages "curl, which fetches files" curl
    command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || need_packages "nginx, which serves files" nginx-light
    ;;
bench)
    command -v valgrind >/dev/null || need_packages "valgrind, which counts instructions" valgrind
    command -v ovs-testcontroller >/dev/null ||
        need_packages "ovs-testcontroller, which is compared with Pathloom's controller" openvswitch-testcontroller
    ;;
cluster)
    need_etcd
    ;;
ns3)
    command -v make >/dev/null || need_packages "make" make
    command -v g++ >/dev/null || need_packages "a C++ compiler, for ns-3" g++
    compgen -G '/usr/include/ns3*/ns3/core-module.h' >/dev/null || need_packages "ns-3, which is compared with Pathloom" libns3-dev
    ;;
lab)
    [ "$(id -u)" = 0 ] || give_up "the lab needs root, for namespaces and switches: run this as root"
    command -v ip >/dev/null && command -v tc >/dev/null || need_packages "iproute2, for namespaces and links" iproute2
    # Only the programs are used. The machine's own instance of Open vSwitch, if it runs, is not touched.
    command -v ovs-vswitchd >/dev/null || need_packages "Open vSwitch" openvswitch-switch
    # The daemons that forward for the switches are faster with another allocator than glibc's.
    /sbin/ldconfig -p | grep 'libtcmalloc_minimal\.so\.4' >/dev/null ||
        (need_packages "tcmalloc, the memory allocator of the lab's switches" libtcmalloc-minimal4) ||
        say "continuing without tcmalloc: the lab's switches forward less"
    # An installed FRR may be in use, and is left as it is.
    [ -x /usr/lib/frr/bgpd ] || (need_frr) || say "continuing without FRR: the lab has no switches=frr"
    command -v mn >/dev/null || need_packages "Mininet, which is tested with the controller" mininet
    command -v mptcpize >/dev/null || need_packages "mptcpize, which makes ordinary programs use MPTCP" mptcpize
    command -v iperf3 >/dev/null || need_packages "iperf3, which checks rates" iperf3
    need_etcd
    command -v curl >/dev/null || need_packages "curl, which asks etcd" curl
    command -v globus-gridftp-server >/dev/null && command -v globus-url-copy >/dev/null ||
        need_packages "GridFTP, whose streams get paths" globus-gridftp-server-progs globus-gass-copy-progs
    ;;
page)
    command -v chromium >/dev/null || need_packages "Chromium, in which the page is tested" chromium fonts-dejavu-core
    command -v npm >/dev/null || need_packages "npm, which fetches axe" npm
    ;;
judges)
    command -v tshark >/dev/null || need_packages "tshark, which checks OpenFlow messages" tshark
    command -v promtool >/dev/null || need_packages "promtool, which checks the alarms for Prometheus" prometheus
    command -v systemd-analyze >/dev/null || need_packages "systemd-analyze, which checks the units" systemd
    command -v chromium >/dev/null || need_packages "Chromium, which checks the layout of reports" chromium fonts-dejavu-core
    ;;
*)
    give_up "usage: prepare.sh build|hostd|package|web|bench|cluster|ns3|lab|page|judges"
    ;;
esac

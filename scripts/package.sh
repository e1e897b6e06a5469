#!/usr/bin/env bash
# Builds the packages into dist/: `package.sh wheel [ARCHITECTURE]` and `package.sh deb [ARCHITECTURE]`.
# ARCHITECTURE is x86_64 (the default) or aarch64. The programs run on any Linux with glibc 2.17 or later: zig links
# them against the symbols of that version. The tools are pinned in packaging/requirements.lock (.venv/package/).
set -euo pipefail
cd "$(dirname "$0")/.."

give_up() { printf 'pathloom: %s\n' "$*" >&2; exit 1; }

kind=${1:-} architecture=${2:-x86_64}
case $architecture in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*) give_up "architecture $architecture: expected x86_64 or aarch64" ;;
esac
target=$architecture-unknown-linux-gnu
export PATH="$PWD/.venv/package/bin:$PATH"
command -v cargo-zigbuild >/dev/null || give_up "cargo-zigbuild is not in .venv/package; run: make .venv/package/.deps"
[ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] ||
    give_up "Rust has no standard library for $target; run: rustup target add $target"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
[ -n "$version" ] || give_up "Cargo.toml: found no version of the workspace"
programs=target/$target/release
share=target/share

# `pathloom --version` says from which commit a package is. An archive of the sources has none.
if commit=$(git rev-parse HEAD 2>/dev/null); then export PATHLOOM_COMMIT=$commit; fi

build() {  # build CRATE --bin NAME, or build CRATE --lib
    cargo-zigbuild rustc --quiet --release --locked --package "$@" --target "$target.2.17" -- -Cstrip=debuginfo
}

build_programs() {
    scripts/prepare.sh package
    # BPF programs are for any architecture; clang compiles them, not zig. They are required, since the host agent and
    # the switch need them.
    export PATHLOOM_BPF=required
    build pathloom-controller --bin pathloom-controller
    build pathloom-hostd --bin pathloom-hostd
    build pathloom-switchd --bin pathloom-switch
    build pathloom-delay --bin pathloom-delay
    build pathloom-preload --lib
    build pathloom-net --lib
}

# example FOLDER NAME: installs the configuration and the unit of a program as examples.
example() {
    install -D -m 644 "docs/$2.example.toml" "$1/$2.toml"
    install -D -m 644 "docs/pathloom-$2.service" "$1/pathloom-$2.service"
}

wheel() {
    # pip installs the content of this folder into the environment: `scripts` beside its Python, `platlib` beside the
    # package, `data` under its root. maturin uses the folder for every build, so it must not stay: a later
    # `maturin develop` would install these programs instead of newer ones.
    trap 'rm -rf pathloom._core.data' EXIT
    rm -rf pathloom._core.data
    for name in pathloom-controller pathloom-hostd pathloom-switch pathloom-delay; do
        install -D -m 755 -t pathloom._core.data/scripts "$programs/$name"
    done
    install -D -m 755 -t pathloom._core.data/platlib/pathloom "$programs/libpathloom_preload.so"
    install -D -m 755 -t pathloom._core.data/data/lib "$programs/libpathloom_net.so"
    install -D -m 644 -t pathloom._core.data/data/include crates/net/include/pathloom_net.h
    for short in controller hostd switch; do
        example pathloom._core.data/data/share/pathloom/examples "$short"
    done
    # Schemes in Python, which the first pages of the documentation use.
    install -D -m 644 -t pathloom._core.data/data/share/pathloom/examples examples/*.py
    # Manual pages and completion, which shells and `man` find beside the programs of an environment.
    mkdir -p pathloom._core.data/data/share
    cp -R "$share/." pathloom._core.data/data/share/
    maturin build --quiet --release --zig --compatibility manylinux2014 --target "$target" --out dist
}

# deb pathloom-controller controller: makes a package of one program, configured by /etc/pathloom/controller.toml.
deb() {
    local name=$1 short=$2 root
    root=$(mktemp -d)
    # shellcheck disable=SC2064 # The folder is already known here.
    trap "rm -rf '$root'" EXIT
    chmod 755 "$root"
    install -D -m 755 "$programs/$name" "$root/usr/bin/$name"
    local documents=$root/usr/share/doc/$name
    install -D -m 644 packaging/debian/copyright "$documents/copyright"
    gzip -9 --no-name < CHANGELOG.md > "$documents/changelog.gz"
    chmod 644 "$documents/changelog.gz"
    install -D -m 644 "docs/$short.example.toml" "$documents/examples/$short.toml"
    install -D -m 644 "docs/$short.example.toml" "$root/etc/pathloom/$short.toml"
    install -d "$root/usr/share/man/man1"
    gzip -9 --no-name < "$share/man/man1/$name.1" > "$root/usr/share/man/man1/$name.1.gz"
    chmod 644 "$root/usr/share/man/man1/$name.1.gz"
    install -D -m 644 -t "$root/usr/share/bash-completion/completions" "$share/bash-completion/completions/$name"
    install -d "$root/lib/systemd/system" "$root/DEBIAN"
    sed 's|/usr/local/bin/|/usr/bin/|' "docs/$name.service" > "$root/lib/systemd/system/$name.service"
    chmod 644 "$root/lib/systemd/system/$name.service"
    printf '/etc/pathloom/%s.toml\n' "$short" > "$root/DEBIAN/conffiles"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$debian/" \
        -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" "packaging/debian/$short/control" > "$root/DEBIAN/control"
    for script in postinst prerm; do
        sed -e "s/@NAME@/$name/g" -e "s/@SHORT@/$short/g" "packaging/debian/$script" > "$root/DEBIAN/$script"
        chmod 755 "$root/DEBIAN/$script"
    done
    mkdir -p dist
    dpkg-deb --root-owner-group --build "$root" "dist/${name}_${version}_$debian.deb" >/dev/null
    rm -rf "$root"
}

# Manual pages and completion come from the commands themselves, so the simulator of this machine must be there.
make_share() {
    [ -x .venv/bin/pathloom ] || give_up "there is no .venv/bin/pathloom, which the manual pages are made from; run: make .venv/.simulator"
    rm -rf "$share"
    .venv/bin/python scripts/share.py "$share"
}

case $kind in
wheel)
    make_share
    build_programs
    wheel
    ;;
deb)
    make_share
    build_programs
    deb pathloom-controller controller
    deb pathloom-hostd hostd
    deb pathloom-switch switch
    ;;
*) give_up "usage: package.sh wheel|deb [x86_64|aarch64]" ;;
esac

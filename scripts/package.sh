#!/usr/bin/env bash
# Builds the packages into dist/: `package.sh wheel [ARCHITECTURE]` and `package.sh deb [ARCHITECTURE]`.
# ARCHITECTURE is x86_64 (the default) or aarch64. What it makes runs on any Linux with glibc 2.17 or later: zig links
# it against the symbols of that version. The tools are pinned in packaging/requirements.lock (.venv/package/).
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
program=target/$target/release/pathloom-controller

build_controller() {
    cargo-zigbuild rustc --quiet --release --locked --package pathloom-controller --bin pathloom-controller \
        --target "$target.2.17" -- -Cstrip=debuginfo
}

wheel() {
    # What is in this folder, pip installs beside the Python of the environment. maturin takes it for any build, so it must
    # not stay: a later `maturin develop` would install this program in place of a newer one.
    trap 'rm -rf pathloom._core.data' EXIT
    install -D -m 755 "$program" pathloom._core.data/scripts/pathloom-controller
    maturin build --quiet --release --zig --compatibility manylinux2014 --target "$target" --out dist
}

deb() {
    local root
    root=$(mktemp -d)
    # shellcheck disable=SC2064 # The folder is known now.
    trap "rm -rf '$root'" EXIT
    chmod 755 "$root"
    install -D -m 755 "$program" "$root/usr/bin/pathloom-controller"
    local documents=$root/usr/share/doc/pathloom-controller
    install -D -m 644 packaging/debian/copyright "$documents/copyright"
    gzip -9 --no-name < CHANGELOG.md > "$documents/changelog.gz"
    chmod 644 "$documents/changelog.gz"
    install -D -m 644 docs/controller.example.toml "$documents/examples/controller.toml"
    install -D -m 644 docs/controller.example.toml "$root/etc/pathloom/controller.toml"
    install -d "$root/lib/systemd/system" "$root/DEBIAN"
    sed 's|/usr/local/bin/|/usr/bin/|' docs/pathloom-controller.service > "$root/lib/systemd/system/pathloom-controller.service"
    chmod 644 "$root/lib/systemd/system/pathloom-controller.service"
    printf '/etc/pathloom/controller.toml\n' > "$root/DEBIAN/conffiles"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$debian/" \
        -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" packaging/debian/control > "$root/DEBIAN/control"
    install -m 755 packaging/debian/postinst packaging/debian/prerm "$root/DEBIAN/"
    mkdir -p dist
    dpkg-deb --root-owner-group --build "$root" "dist/pathloom-controller_${version}_$debian.deb" >/dev/null
}

case $kind in
wheel | deb)
    build_controller
    "$kind"
    ;;
*) give_up "usage: package.sh wheel|deb [x86_64|aarch64]" ;;
esac

#!/usr/bin/env bash
# Tries the wheel like a new user, in the root folder of another system: `try-wheel.sh ROOT [ARCHITECTURE]`, as root.
# ROOT is a folder with Python 3.11 or later and its venv module, such as `debootstrap --variant=minbase
# --include=python3,python3-venv,ca-certificates SUITE ROOT` makes. Only the wheel of the checkout is visible there.
# Prints how long the installation and the first result of README.md take.
set -euo pipefail
cd "$(dirname "$0")/.."

give_up() { printf 'pathloom: %s\n' "$*" >&2; exit 1; }

root=${1:-} architecture=${2:-$(uname -m)}
[ -x "$root/usr/bin/python3" ] || give_up "usage: try-wheel.sh ROOT [ARCHITECTURE]; ROOT needs usr/bin/python3"
[ "$(id -u)" = 0 ] || give_up "chroot needs root"
wheels=(dist/pathloom-*_"$architecture".whl)
[ -f "${wheels[0]}" ] && [ ${#wheels[@]} = 1 ] || give_up "dist has no wheel, or several, for $architecture; run: make wheel"

# pip uses the same index as outside, with the same names and certificates.
for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
done
place=$root/root/try-wheel
rm -rf "$place"
install -D -m 644 -t "$place" "${wheels[0]}" docs/controller.example.toml docs/hostd.example.toml docs/switch.example.toml
sed -n 's/^\$ \(pathloom compare .*--out results\/stride\)$/\1/p' README.md > "$place/first"
[ -s "$place/first" ] || give_up "README.md: found no first command"

cat > "$place/try" <<'TRY'
set -eu
export PATH=/root/try-wheel/venv/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8
cd /root/try-wheel
. /etc/os-release
echo "$PRETTY_NAME, $(python3 --version), $(uname -m)"
began=$(date +%s)
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pathloom-*.whl
echo "installed in $(($(date +%s) - began)) s"
began=$(date +%s)
sh first
echo "first result after $(($(date +%s) - began)) s"
test -s results/stride/report.html
pathloom controller check controller.example.toml
pathloom-switch check switch.example.toml
pathloom-hostd --version
pathloom with-paths --controller 127.0.0.1:9 --paths 2 -- true
TRY
env -i unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh /root/try-wheel/try' sh "$root"

#!/usr/bin/env bash
# The page of `pathloom show` and of the controller. `web.sh build` builds it from web/ into python/pathloom/web/, where
# it is committed. `web.sh check` fails if the committed page is not the one that web/ builds; it does nothing without
# npm.
set -euo pipefail
cd "$(dirname "$0")/.."
built=python/pathloom/web

say() { printf 'pathloom: %s\n' "$*" >&2; }

build() {  # build FOLDER
    if ! cmp -s web/package-lock.json web/node_modules/.locked; then
        npm --prefix web ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
        cp web/package-lock.json web/node_modules/.locked
    fi
    (cd web && npx --no-install tsc --noEmit &&
        npx --no-install esbuild src/main.ts src/app.css --bundle --minify --target=es2022 --legal-comments=none \
            --entry-names=app --outdir="$1" --log-level=warning &&
        npx --no-install esbuild src/widget.ts --bundle --minify --format=esm --target=es2022 --legal-comments=none \
            --outdir="$1" --log-level=warning)
    cp web/src/index.html "$1/index.html"
}

case ${1:-} in
build)
    command -v npm >/dev/null || { say "npm is missing; install Node 18 or later"; exit 1; }
    build "$PWD/$built"
    ;;
check)
    command -v npm >/dev/null || { say "npm is missing, so the committed page is not compared with web/"; exit 0; }
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    build "$fresh"
    for file in index.html app.js app.css widget.js; do
        cmp -s "$fresh/$file" "$built/$file" || { say "$built/$file is not the file that web/ builds; run \`make web\`"; exit 1; }
    done
    ;;
*)
    say "usage: web.sh build|check"; exit 2
    ;;
esac

#!/bin/sh
# Writes requirements/*.lock: every version and hash, for every platform, without the address of an index.
# Usage: tools/lock.sh [uv] [--upgrade]
set -eu
cd "$(dirname "$0")/.."
uv=${1:-uv}
[ $# -gt 0 ] && shift

compile() {
    out=requirements/$1.lock
    shift
    "$uv" pip compile pyproject.toml --universal --generate-hashes --python-version 3.11 \
        --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --quiet -o "$out" "$@"
    if grep -n '://' "$out"; then
        echo "$out names an address: see above" >&2
        exit 1
    fi
    echo "$out: $(grep -c '^[a-z].*==' "$out") packages"
}

compile dev --extra dev "$@"
compile run --constraint requirements/dev.lock "$@"

#!/bin/sh
# Writes requirements/*.lock: every version and hash, for every platform, without the address of an index.
# Usage: tools/lock.sh [uv] [--upgrade]
set -eu
cd "$(dirname "$0")/.."
uv=${1:-uv}
[ $# -gt 0 ] && shift

compile() { # NAME SOURCE [OPTION...]
    out=requirements/$1.lock
    shift
    "$uv" pip compile --universal --generate-hashes --python-version 3.11 \
        --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --quiet -o "$out" "$@"
    if grep -n '://' "$out"; then
        echo "$out names an address: see above" >&2
        exit 1
    fi
    echo "$out: $(grep -c '^[a-z].*==' "$out") packages"
}

compile dev pyproject.toml --extra dev "$@"
compile run pyproject.toml --constraint requirements/dev.lock "$@"
compile image pyproject.toml --extra bigtable --extra cassandra --extra kafka --constraint requirements/dev.lock "$@"
# What makes the wheel (build-system.requires), where only that is wanted.
echo 'hatchling>=1.25' | compile build - --constraint requirements/dev.lock "$@"
# Node.js and npm, which fetch the packages of the dashboard (`make assets`).
compile assets --group assets "$@"

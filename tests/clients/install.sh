#!/usr/bin/env bash
# Installs the MCP clients that the tests drive, in the versions pinned beside this script, into the directory given
# (by default target/clients). It is quick when nothing has changed, and may run twice at once.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
into=${1:-$here/../../target/clients}
mkdir -p "$into"
into=$(cd "$into" && pwd)

for program in python3 npm flock; do
    if ! command -v "$program" >/dev/null; then
        echo "install.sh: $program is missing; on Debian: apt-get install python3-venv npm util-linux" >&2
        exit 1
    fi
done

exec 9>"$into/lock"
flock 9

# Whether part $1 has to be installed: what is there was not made from the files that follow.
begin() {
    stamp=$(cd "$here" && sha256sum "${@:2}")
    if [[ -f $into/$1.stamp && $(<"$into/$1.stamp") == "$stamp" ]]; then
        return 1
    fi
    echo "install.sh: installing $1" >&2
    rm -rf "${into:?}/$1.stamp" "${into:?}/$1"
}

finish() {
    printf '%s\n' "$stamp" >"$into/$1.stamp"
}

for line in 1 2; do
    if begin "python-$line" "python-$line.txt"; then
        python3 -m venv "$into/python-$line"
        "$into/python-$line/bin/pip" install --quiet --disable-pip-version-check \
            --requirement "$here/python-$line.txt" >&2
        finish "python-$line"
    fi
done

if begin node package.json package-lock.json; then
    mkdir "$into/node"
    cp "$here/package.json" "$here/package-lock.json" "$into/node/"
    # Nothing that is installed may run code then; Node.js itself comes as a package too.
    npm install --prefix "$into/node" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    finish node
fi

#!/bin/sh
# Install a wheel into an empty environment and send records through it there.
# Usage: try.sh PYTHON WHEEL
set -eu
python=$1
wheel=$(realpath "$2")
round_trip=$(realpath "$(dirname "$0")/round_trip.py")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install -q --disable-pip-version-check "$wheel"
cd "$place"
unset LD_LIBRARY_PATH PYTHONPATH
"$place/venv/bin/python" -I "$round_trip"
echo "$(basename "$wheel"): works in an empty environment"

#!/bin/sh
# Install a wheel into an empty environment and send records there, with Spark if PYTHON has it.
# Usage: try.sh PYTHON WHEEL
set -eu
python=$1
wheel=$(realpath "$2")
tests=$(realpath "$(dirname "$0")")
# Spark has about 400 MB, so the new environment borrows it from that of PYTHON.
where='import pyarrow, pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent.parent)'
lent=$("$python" -I -c "$where" 2>/dev/null) || lent=
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install -q --disable-pip-version-check "$wheel"
cd "$place"
unset LD_LIBRARY_PATH PYTHONPATH
"$place/venv/bin/python" -I "$tests/round_trip.py"
"$place/venv/bin/python" -I "$tests/without_spark.py"
echo "$(basename "$wheel"): works in an empty environment"

if [ -z "$lent" ]; then
  echo "$(basename "$wheel"): not tried with Spark, which $python does not have"
  exit 0
fi
mkdir "$place/lent"
for name in pyspark py4j pyarrow; do
  for path in "$lent/$name" "$lent/$name"-*.dist-info "$lent/$name".libs; do
    if [ -e "$path" ]; then ln -s "$path" "$place/lent/"; fi
  done
done
packages=$("$place/venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$place/lent" > "$packages/lent.pth"
"$place/venv/bin/python" -I "$tests/with_spark.py"
echo "$(basename "$wheel"): works with Spark"

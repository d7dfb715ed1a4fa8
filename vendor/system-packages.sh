#!/bin/sh
# Sees to it that the Debian or Ubuntu packages a build needs are there.
# Usage: system-packages.sh PYTHON [EXTRA-PACKAGE...]
# The extra package "kafka" stands for what the tests with real brokers need.
# As root it installs what is missing; as anybody else it prints the command and fails.
set -eu
python=$1
shift

if ! command -v "$python" >/dev/null 2>&1; then
    echo "There is no $python. Install Python >= 3.11 or name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$python is $("$python" -V); Python >= 3.11 is needed: make PYTHON=/path/to/python3" >&2
    exit 1
fi

installed() {
    dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q 'ok installed'
}
wanted="gcc libc6-dev pkg-config"
if [ "${CYKAFKA_LIBRDKAFKA:-bundled}" = system ]; then
    wanted="$wanted librdkafka-dev"
else
    # g++: librdkafka's ./configure asks for a C++ compiler, though none of its C++ is built.
    wanted="$wanted g++ make patch libssl-dev libsasl2-dev libzstd-dev liblz4-dev zlib1g-dev"
    # Any of curl's development packages will do; they exclude each other.
    installed libcurl4-gnutls-dev || wanted="$wanted libcurl4-openssl-dev"
fi
# What Debian's Python leaves out; one from elsewhere brings both.
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -e "$header" ] || wanted="$wanted $version-dev"
"$python" -c 'import ensurepip, venv' 2>/dev/null || wanted="$wanted $version-venv"
for extra in "$@"; do
    case $extra in
    kafka)
        # Any Java and Maven will do; the rest is Kerberos.
        command -v java >/dev/null 2>&1 || [ -x "${JAVA_HOME:-}/bin/java" ] ||
            wanted="$wanted default-jre-headless"
        command -v mvn >/dev/null 2>&1 || wanted="$wanted maven"
        wanted="$wanted krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit"
        ;;
    *) wanted="$wanted $extra" ;;
    esac
done

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "Not a Debian or Ubuntu: see to it that the equivalents of these are installed: $wanted"
    exit 0
fi
missing=
for package in $wanted; do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "System packages are missing. Run this, then make again:" >&2
    echo "  sudo apt-get update && sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "installing system packages:$missing"
export DEBIAN_FRONTEND=noninteractive
install() {
    # shellcheck disable=SC2086 # a list of words
    apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 $missing </dev/null
}
# The lists may be absent, or too old for what the mirror still has.
# shellcheck disable=SC2086
if apt-get install -q -y --no-install-recommends --simulate $missing >/dev/null 2>&1 && install; then
    exit 0
fi
apt-get update -q
install

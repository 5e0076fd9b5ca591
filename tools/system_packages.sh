#!/bin/sh
# What the test servers need from the system: Java 17 and Maven, for Cassandra and Kafka; mosquitto, which is a server itself;
# its clients and kcat, which stand for the programs of others; Chromium, which shows pages; Prometheus, which reads
# metrics; openssl, which makes certificates, and systemd, whose checker is shown our units. (Go is fetched where it is missing.)
# Says nothing if all is there. Installs what is missing if this is root and there is apt-get; else says what to install.
# Exit code 1: something is missing still, and CI=true. Elsewhere the tests that need it are skipped, so it is a note.
set -eu
PATH="$PATH:/usr/sbin:/usr/local/sbin" # Debian has brokers there, which is not on everyone's PATH

has_java() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java /usr/lib/jvm/*17*/bin/java; do
        if [ -n "$java" ] && "$java" -version 2>&1 | grep -q 'version "17'; then return 0; fi
    done
    return 1
}

has_jars() {
    for jars in "${WIDEROW_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/widerow}/$1"-*/; do
        [ -d "$jars" ] && return 0
    done
    return 1
}

has_maven() {
    command -v mvn >/dev/null && return 0
    # Maven only fetches: what is fetched already needs none.
    has_jars cassandra-all && has_jars kafka_2.13
}

has() { command -v "$1" >/dev/null; }

missing() {
    has_java || echo openjdk-17-jre-headless
    has_maven || echo maven
    has mosquitto || echo mosquitto
    { has mosquitto_pub && has mosquitto_sub; } || echo mosquitto-clients
    has kcat || echo kcat
    has chromium || echo chromium
    { has prometheus && has promtool; } || echo prometheus
    has openssl || echo openssl
    has systemd-analyze || echo systemd
}

wanted=$(missing | xargs)
[ -n "$wanted" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "== installing for the test servers: $wanted"
    quick="-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120"
    # shellcheck disable=SC2086 # lists of options and packages
    {
        apt-get $quick update || true
        # One by one: a release that lacks one of them still gets the others.
        for package in $wanted; do
            DEBIAN_FRONTEND=noninteractive apt-get $quick install -y --no-install-recommends "$package" >/dev/null || true
        done
    }
fi
wanted=$(missing | xargs)
[ -n "$wanted" ] || exit 0
echo "missing for the test servers, and could not be installed here: $wanted" >&2
echo "  (names of Debian packages; Cassandra needs Java 17 and no other, JAVA_HOME may name it)" >&2
[ "${CI:-}" != true ]

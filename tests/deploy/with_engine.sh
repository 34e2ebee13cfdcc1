#!/usr/bin/env bash
# Runs a command with a container engine: with_engine.sh COMMAND...
#
# Where no engine answers, root on Linux with Docker's packages gets one for this command alone. Its network, mounts and
# processes end with it; its images stay in .cache/engine for the next command. It reaches no registry, so `make
# image-files` fetches files before. Ends with 3 where there is no engine and none can be started.
set -eu
if docker info >/dev/null 2>&1; then exec "$@"; fi
if [ "${1:-}" != --inside ]; then
    if [ "$(id -u)" != 0 ] || ! command -v dockerd >/dev/null || ! command -v mmdebstrap >/dev/null; then
        echo "skipped: no container engine answers, and to start one takes root, dockerd and mmdebstrap" >&2
        exit 3
    fi
    make --no-print-directory image-files
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$folder" "$@"
    echo "the images are in .cache/engine, a data root of dockerd"
    exit
fi
folder=$2
shift 2
ip link set lo up
export DOCKER_HOST=unix://$folder/engine.sock
dockerd --host "$DOCKER_HOST" --data-root "$PWD/.cache/engine" --exec-root "$folder/run" --pidfile "$folder/pid" \
    --iptables=false >"$folder/log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true' EXIT
for _ in $(seq 60); do
    if docker info >/dev/null 2>&1; then
        docker ps --all --quiet | xargs --no-run-if-empty docker rm --force >/dev/null  # of a command that was killed
        "$@"
        exit
    fi
    sleep 1
done
tail -20 "$folder/log" >&2
exit 1

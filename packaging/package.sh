# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by build-deb and build-rpm: what is packaged, which version it is, for which Slurm; and by debian/rules for the latter.
# root: the checkout.

# The one place that knows the version is CMake's project().
package_version() {
    sed -n 's/^project(slurm-dp VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt"
}

# SPANK plugins must match Slurm's major release, here that of the installed headers: 22.05.
slurm_release() {
    local number
    number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\)$/\1/p' /usr/include/slurm/slurm_version.h)
    printf '%d.%02d\n' $((0x$number >> 16)) $((0x$number >> 8 & 0xff))
}

# For "older than": 22.06. Slurm's releases are months, so every release after this one is at least that.
slurm_release_after() {
    local release
    release=$(slurm_release)
    printf '%d.%02d\n' "${release%.*}" $((10#${release#*.} + 1))
}

# When the packaged commit was made, so that two builds of it are equal; without git (a release's archive) when its newest file was.
source_date() {
    git -C "$root" log -1 --format=%ct 2>/dev/null ||
        find "$root" -path "$root/build*" -prune -o -type f -printf '%Ts\n' | sort -n | tail -n 1
}

# $1: name of the folder inside; $2: file. The tree as it is here, changes that are not committed too.
pack_sources() {
    tar -C "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX \
        --exclude='./build' --exclude='./build-*' --exclude='./.git' --exclude='__pycache__' \
        --transform="s,^\.,$1," --xz -cf "$2" .
}

# $1: deb or rpm; the rest: the script's arguments. Sets output (made), version, release and SOURCE_DATE_EPOCH.
begin_package() {
    local kind=$1
    shift
    output=$root/build/$kind
    while [ $# -gt 0 ]; do
        case $1 in
        --output=*) output=${1#*=} ;;
        --output)
            output=${2-}
            shift
            ;;
        -h | --help)
            echo "usage: packaging/build-$kind [--output FOLDER]"
            echo "  makes the $kind packages for the Slurm whose headers are installed, in build/$kind or FOLDER"
            exit 0
            ;;
        *) output= ;;
        esac
        if [ $# = 0 ] || [ -z "$output" ]; then
            echo "build-$kind: not understood; usage: packaging/build-$kind [--output FOLDER]" >&2
            exit 2
        fi
        shift
    done
    trap 'end_job TERM 10' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Elsewhere than on Debian, rpmbuild says itself what is missing.
    [ ! -e /etc/debian_version ] || loudly "$root/packaging/install-dependencies" build "$kind"
    mkdir -p "$output"
    output=$(readlink -f "$output")
    version=$(package_version)
    release=$(slurm_release)
    SOURCE_DATE_EPOCH=$(source_date)
    export SOURCE_DATE_EPOCH
    # A package's build has a home of its own; the compiler's cache is where it always is. It must not make paths relative: they are
    # in the debugging information, and two builds would differ.
    if command -v ccache >/dev/null; then
        CCACHE_DIR=$(ccache --get-config cache_dir)
        export CCACHE_DIR CCACHE_BASEDIR=
    fi
    step "slurm-dp $version for Slurm $release"
}

# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by build-deb, build-rpm and debian/rules: what is packaged, which version it is, and for which Slurm.
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
    git -C "$root" log -1 --format=%ct 2>/dev/null || find "$root" -path "$root/build*" -prune -o -type f -printf '%Ts\n' | sort -n | tail -n 1
}

# $1: name of the folder inside; $2: file. The tree as it is here, changes that are not committed too.
pack_sources() {
    tar -C "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX \
        --exclude='./build' --exclude='./build-*' --exclude='./.git' --exclude='__pycache__' \
        --transform="s,^\.,$1," --xz -cf "$2" .
}

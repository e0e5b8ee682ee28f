#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# record.sh OUT: builds the recorder for both versions of Cilium and records
# every cluster of clusters/ with each, into OUT/VERSION/. It runs as root, and
# takes minutes and gigabytes of Go modules at first.
set -euo pipefail
[ $# = 1 ] || { echo "usage: record.sh OUT" >&2; exit 2; }
mkdir -p "$1"
out=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT

# Each recording sees a BPF file system of its own, and none but that.
alone='umount --all --types bpf; mount -t bpf bpf /sys/fs/bpf; exec "$@"'

record() {
	local version=$1 tags=$2 modules=$3
	go build -buildvcs=false -modfile="$modules" -tags="$tags" -o "$programs/record" .
	mkdir -p "$out/$version"
	for cluster in clusters/*.txtar; do
		unshare --mount sh -ec "$alone" sh "$programs/record" -version "$version" -out "$out/$version" "$cluster"
	done
}

record 1.18.5 cilium_1_18 1.18.5.mod
record 1.20.2 "" go.mod

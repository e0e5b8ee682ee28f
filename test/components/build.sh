#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs that the tests run (the tools of this folder's go.mod)
# into a cache folder named after the Kubernetes version, where package
# test/kube looks for them:
#
#   ${FAIRLEAD_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fairlead-test}/kubernetes-VERSION/
#
# A program that is there and was built from the same go.mod, go.sum and
# script is left alone. Callers that come at the same time wait for each other.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

cache=${FAIRLEAD_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fairlead-test}

# Neither the caller's flags nor a workspace may change what is built.
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
unset GOOS GOARCH

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
dir=$cache/kubernetes-$version
mkdir -p "$dir"

exec 9>"$dir/.lock"
flock -n 9 || { echo "waiting for another build in $dir" >&2; flock 9; }

inputs=$(cat go.mod go.sum build.sh <(go version) | sha256sum | cut -d' ' -f1)

# build NAME PACKAGE LDFLAGS: a finished program appears under its name at
# once, and its stamp after it, so that an interrupted build is done again.
build() {
	local name=$1 package=$2 ldflags=$3 start=$SECONDS
	if [ -x "$dir/$name" ] && [ "$(cat "$dir/.$name.inputs" 2>/dev/null)" = "$inputs" ]; then
		echo "$dir/$name: up to date"
		return
	fi
	echo "building $name for Kubernetes $version (minutes on a cold Go build cache)" >&2
	rm -f "$dir/.$name.inputs"
	go build -buildvcs=false -trimpath -ldflags "$ldflags" -o "$dir/.$name.new" "$package"
	mv "$dir/.$name.new" "$dir/$name"
	echo "$inputs" >"$dir/.$name.inputs"
	echo "$dir/$name: built in $((SECONDS - start)) s"
}

IFS=. read -r major minor _ <<<"${version#v}"
x=k8s.io/component-base/version
k8s="-s -w -X $x.gitVersion=$version -X $x.gitMajor=$major -X $x.gitMinor=$minor"

build etcd go.etcd.io/etcd/server/v3 "-s -w"
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$k8s"
build kubectl k8s.io/kubernetes/cmd/kubectl "$k8s"

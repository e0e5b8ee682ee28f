#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh [cluster]: builds the programs that the tests run (the tools of
# this folder's go.mod, and helm), and with "cluster" all that a whole cluster takes,
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

inputs=$(cat go.mod go.sum build.sh coredns/* helm/* <(go version) | sha256sum | cut -d' ' -f1)

# build NAME COMMAND...: runs the command, which leaves the program in the file
# that it finds in $out. A finished program appears under its name at once, and
# its stamp after it, so that an interrupted build is done again.
build() {
	local name=$1 out=$dir/.$1.new start=$SECONDS
	shift
	if [ -x "$dir/$name" ] && [ "$(cat "$dir/.$name.inputs" 2>/dev/null)" = "$inputs" ]; then
		echo "$dir/$name: up to date"
		return
	fi
	echo "building $name for Kubernetes $version (minutes on a cold Go build cache)" >&2
	rm -f "$dir/.$name.inputs"
	"$@"
	mv "$out" "$dir/$name"
	echo "$inputs" >"$dir/.$name.inputs"
	echo "$dir/$name: built in $((SECONDS - start)) s"
}

IFS=. read -r major minor _ <<<"${version#v}"
x=k8s.io/component-base/version
stamp="-X $x.gitVersion=$version -X $x.gitMajor=$major -X $x.gitMinor=$minor"

# Each of these reads $out of its caller.
plain() { go build -buildvcs=false -trimpath -ldflags "-s -w" -o "$out" "$1"; }
stamped() { go build -buildvcs=false -trimpath -ldflags "-s -w $stamp" -o "$out" "k8s.io/kubernetes/$1"; }
tests() { go test -c -buildvcs=false -trimpath -ldflags "-s -w $stamp" -o "$out" "k8s.io/kubernetes/$1"; }
inside() { (cd "$1" && plain "${2:-.}"); }
native() { gcc -Os -static -DVERSION="$version" -o "$out" "$kubernetes/$1"; }

build etcd plain go.etcd.io/etcd/server/v3
build kube-apiserver stamped cmd/kube-apiserver
build kubectl stamped cmd/kubectl
build kube-proxy stamped cmd/kube-proxy
build helm inside helm helm.sh/helm/v3/cmd/helm
[ "${1:-}" = cluster ] || exit 0

kubernetes=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
for name in kubelet kube-controller-manager kube-scheduler; do
	build $name stamped cmd/$name
done
build coredns inside coredns
# Upstream's tests, the runner of their version, and what is in their images.
build e2e.test tests test/e2e
build ginkgo plain github.com/onsi/ginkgo/v2/ginkgo
build agnhost plain k8s.io/kubernetes/test/images/agnhost
build regression-issue-74839 plain k8s.io/kubernetes/test/images/regression-issue-74839
build pause native build/pause/linux/pause.c

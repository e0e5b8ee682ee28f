#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the images that upstream's tests run, without any registry: upstream's
# own programs, from test/components/build.sh, on a Debian of the suite and
# mirror that this machine's apt uses. All the images share one layer and
# differ in what they start. The result is an archive as `docker save` writes:
#
#   ${FAIRLEAD_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fairlead-test}/cluster/images.tar
#
# It is left alone if it was made from the same programs and script.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

cache=${FAIRLEAD_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fairlead-test}
version=$(cd "$here/../components" && GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes)
kubernetes=$(cd "$here/../components" && GOWORK=off go list -m -f '{{.Dir}}' k8s.io/kubernetes)
bin=$cache/kubernetes-$version
dir=$cache/cluster
mkdir -p "$dir"

exec 9>"$dir/.images.lock"
flock -n 9 || { echo "waiting for another build of $dir/images.tar" >&2; flock 9; }

# What upstream has in its images of Alpine, and what its scripts expect of a
# shell. The nc must be OpenBSD's: tests read what it says.
packages=bash,bind9-dnsutils,bind9-host,busybox,ca-certificates,conntrack,curl,iperf,iproute2,iptables,iputils-ping
packages+=,netcat-openbsd,nftables,procps,socat,wget

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
inputs=$(cat "${BASH_SOURCE[0]}" "$bin/.agnhost.inputs" <(echo "$suite") | sha256sum | cut -d' ' -f1)
if [ -e "$dir/images.tar" ] && [ "$(cat "$dir/.images.inputs" 2>/dev/null)" = "$inputs" ]; then
	echo "$dir/images.tar: up to date"
	exit
fi

# The one that apt uses, once it has lists.
find_mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" 'Component: main' | sort -u | head -n 1
}
mirror=$(find_mirror)
[ -n "$mirror" ] || { apt-get update -qq >/dev/null; mirror=$(find_mirror); }
[ -n "$mirror" ] || { echo "apt has no source of $suite, component main, to make images from" >&2; exit 1; }
echo "making $dir/images.tar from Debian $suite (a minute or two)" >&2
rm -f "$dir/.images.inputs"

work=$dir/.images
root=$work/root
rm -rf --one-file-system "$work"
mkdir -p "$work"
trap 'rm -rf --one-file-system "$work"' EXIT

# What debootstrap mounts goes away with the namespace, also if it is killed.
unshare --mount --propagation private \
	debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror" >"$dir/debootstrap.log" 2>&1 ||
	{ tail -n 5 "$dir/debootstrap.log" >&2; echo "debootstrap failed: see $dir/debootstrap.log" >&2; exit 1; }
rm -rf "$root"/var/{cache/apt,lib/apt/lists,log}/* "$root"/usr/share/{doc,info,locale,man} "$root"/dev/*

cp "$bin"/{agnhost,coredns,pause,regression-issue-74839} "$root/"
cp "$kubernetes"/test/images/agnhost/porter/localhost.{crt,key} "$root/"
ln -s agnhost "$root/agnhost-2"
mkdir "$root/uploads" "$root/busybox"
chmod 1777 "$root/tmp"
# Tests count on a wget that tries once, as the one of Alpine does.
echo 'tries = 1' >>"$root/etc/wgetrc"
for applet in $("$root/bin/busybox" --list); do
	ln -s /bin/busybox "$root/busybox/$applet"
done

tar -C "$root" --numeric-owner -cf "$work/layer.tar" .
layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
# The last is for the containerd of the nodes, which starts every pod with it.
references=$("$bin/e2e.test" --list-images 2>/dev/null; echo localhost/pause:local)
images=() configs=()

# image NAME CONFIG: adds the image under every reference that the tests have
# for that name.
image() {
	local tags
	tags=$({ grep "/$1:" <<<"$references" || true; } | sort -u | sed 's/.*/"&"/' | paste -sd,)
	[ -n "$tags" ] || { echo "upstream's tests know no image named $1" >&2; exit 1; }
	cat >"$work/$1.json" <<-END
		{"architecture":"$(dpkg --print-architecture)","os":"linux","config":$2,
		 "rootfs":{"type":"layers","diff_ids":["sha256:$layer"]}}
	END
	configs+=("$1.json")
	images+=("{\"Config\":\"$1.json\",\"RepoTags\":[$tags],\"Layers\":[\"layer.tar\"]}")
}

path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
env="\"Env\":[\"PATH=$path\"]"
image agnhost "{$env,\"Entrypoint\":[\"/agnhost\"],\"Cmd\":[\"pause\"]}"
image busybox "{\"Env\":[\"PATH=/busybox:$path\"],\"Cmd\":[\"sh\"]}"
image distroless-iptables "{$env,\"Cmd\":[\"/bin/bash\"]}"
image jessie-dnsutils "{$env,\"Cmd\":[\"/bin/bash\"]}"
image nginx "{$env,\"Entrypoint\":[\"/agnhost\"],\"Cmd\":[\"netexec\",\"--http-port=80\",\"--udp-port=-1\"]}"
image regression-issue-74839 "{$env,\"Entrypoint\":[\"/regression-issue-74839\"]}"
image pause "{$env,\"Entrypoint\":[\"/pause\"],\"User\":\"65535:65535\"}"

(IFS=,; echo "[${images[*]}]") >"$work/manifest.json"
tar -C "$work" -cf "$dir/.images.new" manifest.json layer.tar "${configs[@]}"
mv "$dir/.images.new" "$dir/images.tar"
echo "$inputs" >"$dir/.images.inputs"
echo "$dir/images.tar: made in $SECONDS s"

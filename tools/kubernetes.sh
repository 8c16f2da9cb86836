#!/usr/bin/env bash
# Makes ready what the tests of real clusters need: the programs of Kubernetes, built once from their published Go modules with the
# machine's own settings of Go, in a cache outside the checkout, a folder for each program and version. `make test` never calls it:
# a version of Kubernetes takes some twenty minutes. Without them those tests skip.
#   tools/kubernetes.sh           build what is missing
#   tools/kubernetes.sh --where   print the folder of the programs
set -euo pipefail
export LC_ALL=C
cache=${KUBEXM_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kubexm-lab}
programs=$cache/programs
if [ "${1:-}" = --where ]; then
  echo "$programs"
  exit 0
fi

fail() {
  echo "no programs of Kubernetes: $1" >&2
  exit 1
}

command -v go >/dev/null || fail "no Go here to build them with"
command -v gcc >/dev/null || fail "no C compiler here to build runc and pause with"
wanted=()
[ -e /usr/include/seccomp.h ] || wanted+=(libseccomp-dev)
command -v docker-registry >/dev/null || wanted+=(docker-registry)
if [ "${#wanted[@]}" -gt 0 ]; then
  why=$("$(dirname "$0")/apt.sh" "${wanted[@]}") || fail "$why"
fi
mkdir -p "$programs"
exec 9>"$programs/lock"
if ! flock -n 9; then
  echo "somebody else is building the programs of Kubernetes: waiting for it" >&2
  flock 9
fi
rm -rf "$programs"/building.*
scratch=$(mktemp -d "$programs/building.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export GOWORK=off CGO_ENABLED=0
bin=$scratch/bin
flags="${GOFLAGS:-} -trimpath -p=${JOBS:-2}"

# program NAME VERSION FUNCTION...: calls the function in an empty folder; what it leaves in $bin is the program.
program() {
  local name=$1 version=$2 since=$SECONDS
  shift 2
  [ ! -d "$programs/$name-$version" ] || return 0
  echo "building $name $version" >&2
  rm -rf "$scratch/bin" "$scratch/work"
  mkdir "$scratch/bin" "$scratch/work"
  # In the background, since in front of || nothing that fails would end it.
  (cd "$scratch/work" && "$@" "$version") >"$programs/build.log" 2>&1 9>&- &
  wait $! || {
    tail -n 20 "$programs/build.log" >&2
    fail "$name $version could not be built, see $programs/build.log"
  }
  mv -T "$scratch/bin" "$programs/$name-$version"
  echo "  there after $((SECONDS - since)) s: $(ls "$programs/$name-$version" | tr '\n' ' ')" >&2
}

# Where the sources of MODULE@VERSION are; downloaded and checked by Go.
sources() {
  (cd / && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# built MODULE PACKAGE STAMP VERSION [NAME]: a command of a published module, as a part of a module of ours: `go install` would
# ask for a list of versions, which not every proxy has.
built() {
  local module=$1 package=$2 stamp=$3 version=$4
  local name=${5:-$(basename "$module$package")}
  [ -e go.mod ] || printf 'module lab\n\ngo 1.24\n\nrequire %s v%s\n' "$module" "$version" >go.mod
  GOFLAGS="$flags -mod=mod" go build -ldflags "-s -w $stamp" -o "$bin/$name" "$module$package"
}

# Kubernetes names parts of itself by places in its own tree, which only it has: a module around it names the published ones.
kubernetes() {
  local version=$1 minor info staging
  minor=${version#*.} minor=${minor%%.*}
  info=$(sources "k8s.io/kubernetes@v$version")
  {
    printf 'module lab\n\ngo 1.24\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
    staging=$(sed -n 's|^\t\(k8s.io/[a-z0-9-]*\) => ./staging/.*|\1|p' "$info/go.mod")
    printf "\t%s => %s v0.${version#1.}\n" $(for each in $staging; do echo "$each" "$each"; done)
    printf ')\n'
  } >go.mod
  local stamp="" place
  for place in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    stamp+=" -X $place.gitVersion=v$version -X $place.gitMajor=1 -X $place.gitMinor=$minor -X $place.gitTreeState=clean"
  done
  local each
  for each in kubeadm kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl; do
    built k8s.io/kubernetes "/cmd/$each" "$stamp" "$version"
  done
}

etcd() {
  local version=$1
  {
    printf 'module lab\n\ngo 1.24\n\nrequire (\n'
    printf "\tgo.etcd.io/etcd/%s/v3 v$version\n" server etcdctl etcdutl
    printf ')\n'
  } >go.mod
  built go.etcd.io/etcd/server/v3 "" "" "$version" etcd
  built go.etcd.io/etcd/etcdctl/v3 "" "" "$version" etcdctl
  built go.etcd.io/etcd/etcdutl/v3 "" "" "$version" etcdutl
}

containerd() {
  local each stamp=github.com/containerd/containerd/v2/version
  for each in containerd ctr containerd-shim-runc-v2; do
    built github.com/containerd/containerd/v2 "/cmd/$each" "-X $stamp.Version=v$1 -X $stamp.Revision=lab" "$1"
  done
}

runc() {
  flags+=" -tags=seccomp,urfave_cli_no_docs,netgo,osusergo" CGO_ENABLED=1 \
    built github.com/opencontainers/runc "" "-X main.version=$1 -extldflags -static" "$1"
}

cni_plugins() {
  local each
  for each in main/bridge main/loopback main/ptp main/host-device main/ipvlan main/macvlan main/vlan ipam/host-local ipam/dhcp \
    ipam/static meta/portmap meta/bandwidth meta/tuning meta/firewall meta/vrf meta/sbr; do
    built github.com/containernetworking/plugins "/plugins/$each" \
      "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v$1" "$1"
  done
}

# The plugin of flannel is no longer a part of the others and not to be had as a module of its own: this is the last one that was.
flannel_cni() {
  built github.com/containernetworking/plugins /plugins/meta/flannel "" 0.9.1
}

# Without the backends of a cloud, whose library not every proxy has, and of UDP, which needs C.
flannel() {
  local source stamp="-X github.com/flannel-io/flannel/pkg/version.Version=v$1"
  source=$(sources "github.com/flannel-io/flannel@v$1")
  built github.com/flannel-io/flannel /cmd/install_conf "" "$1" install-conf
  grep -v '/backend/\(tencentvpc\|udp\)"' "$source/main.go" >main.go
  GOFLAGS="$flags -mod=mod" go build -ldflags "-s -w $stamp" -o "$bin/flanneld" .
  cp "$source/Documentation/kube-flannel.yml" "$bin/"
}

# CoreDNS with the plugins that a cluster's configuration names, and some that people add: the others bring the libraries of
# three clouds along, which would take longer than the rest.
coredns() {
  local each
  printf 'module lab\n\ngo 1.24\n\nrequire github.com/coredns/coredns v%s\n' "$1" >go.mod
  {
    printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
    for each in bind cache debug errors file forward health hosts kubernetes loadbalance log loop metadata metrics ready reload \
      rewrite root template whoami; do
      printf '\t_ "github.com/coredns/coredns/plugin/%s"\n' "$each"
    done
    printf ')\n\nfunc main() { coremain.Run() }\n'
  } >main.go
  GOFLAGS="$flags -mod=mod" go build -ldflags "-s -w" -o "$bin/coredns" .
}

# The first container of every pod: its source is a part of Kubernetes.
pause() {
  gcc -Os -Wall -static -DVERSION=lab -o "$bin/pause" "$(sources "k8s.io/kubernetes@v$newest")/build/pause/linux/pause.c"
  strip "$bin/pause"
}

newest=1.36.4 older=1.35.8
program pause 3.10.2 pause
program runc 1.4.3 runc
program containerd 2.3.4 containerd
program cni-plugins 1.9.1 cni_plugins
program flannel-cni-plugin 1.9.1-flannel3 flannel_cni
program crictl 1.36.0 built sigs.k8s.io/cri-tools /cmd/crictl "-X sigs.k8s.io/cri-tools/pkg/version.Version=v1.36.0"
program kubernetes "$newest" kubernetes
program etcd 3.6.8 etcd
program coredns 1.14.2 coredns
program flannel 0.28.9 flannel
program etcd 3.6.14 etcd
program helm 3.22.0 built helm.sh/helm/v3 /cmd/helm "-X helm.sh/helm/v3/internal/version.version=v3.22.0"
program kubernetes "$older" kubernetes
program etcd 3.6.6 etcd
program coredns 1.13.1 coredns
program pause 3.10.1 pause

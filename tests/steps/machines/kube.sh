# An API server with its etcd on the machine, and objects of nodes and pods that nothing runs. All cases share it: it takes seconds to
# start. What belongs to a case is deleted by `end`.
K=/run/kube-lab
kc() { kubectl --kubeconfig="$K/admin.conf" "$@"; }
api() {
  if kc get --raw /readyz >/dev/null 2>&1; then return; fi
  mkdir -p "$K" && chmod 700 "$K"
  openssl genrsa -out "$K/sa.key" 2048 2>/dev/null
  echo 'lab-token,admin,admin,system:masters' >"$K/tokens"
  etcd --name e1 --data-dir "$K/etcd" --initial-cluster e1=http://127.0.0.1:17380 --listen-client-urls http://127.0.0.1:17379 \
    --advertise-client-urls http://127.0.0.1:17379 --listen-peer-urls http://127.0.0.1:17380 \
    --initial-advertise-peer-urls http://127.0.0.1:17380 >"$K/etcd.log" 2>&1 </dev/null &
  kube-apiserver --etcd-servers=http://127.0.0.1:17379 --secure-port=17443 --bind-address=127.0.0.1 --cert-dir="$K/certs" \
    --service-account-key-file="$K/sa.key" --service-account-signing-key-file="$K/sa.key" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default --token-auth-file="$K/tokens" --service-cluster-ip-range=10.96.0.0/16 \
    --disable-admission-plugins=ServiceAccount --profiling=false >"$K/api.log" 2>&1 </dev/null &
  echo $! >"$K/pid"
  printf '%s\n' 'apiVersion: v1' 'kind: Config' 'clusters: [{name: lab, cluster: {server: "https://127.0.0.1:17443", insecure-skip-tls-verify: true}}]' \
    'users: [{name: admin, user: {token: lab-token}}]' 'contexts: [{name: lab, context: {cluster: lab, user: admin}}]' \
    'current-context: lab' >"$K/admin.conf"
  until kc get --raw /readyz >/dev/null 2>&1 && kc get namespace default >/dev/null 2>&1; do kill -0 "$(cat "$K/pid")"; done
}
node() { printf 'apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {zone: a, old: "1"}}\nspec: {taints: [{key: gone, effect: NoSchedule}]}\n' "$1" | kc create -f - >/dev/null; }
# pod NAME [OWNER] [VOLUME]: one on n1 that takes no time to end, of a ReplicaSet or a DaemonSet.
pod() {
  owner= volume=
  [ -z "${2:-}" ] || owner="ownerReferences: [{apiVersion: apps/v1, kind: $2, name: $(echo "$2" | tr A-Z a-z), uid: $(uid "$2"), controller: true}]"
  [ -z "${3:-}" ] || volume="volumes: [{name: v, emptyDir: {}}]"
  printf '{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, labels: {app: web}, %s}, spec: {nodeName: n1, terminationGracePeriodSeconds: 0, tolerations: [{operator: Exists}], containers: [{name: c, image: a.b/c:1}], %s}}\n' \
    "$1" "$owner" "$volume" | kc create -f - >/dev/null
  kc patch pod "$1" --subresource=status --type=merge -p '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}' >/dev/null
}
uid() {
  name=$(echo "$1" | tr A-Z a-z)
  kc get "$name" "$name" >/dev/null 2>&1 || printf '{apiVersion: apps/v1, kind: %s, metadata: {name: %s, namespace: default}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: a.b/c:1}]}}}}\n' "$1" "$name" | kc create -f - >/dev/null
  kc get "$name" "$name" -o jsonpath='{.metadata.uid}'
}
# Its status is what the controller of budgets would say.
budget() {
  printf '{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: default}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}\n' | kc create -f - >/dev/null
  kc patch pdb web --subresource=status --type=merge -p \
    '{"status":{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}' >/dev/null
}
show() {
  kc get node -o jsonpath='{range .items[*]}{.metadata.name} {.spec.unschedulable} {.metadata.labels} {range .spec.taints[*]}{.key}={.value}:{.effect} {end}{"\n"}{end}' | sed 's/node.kubernetes.io[^ ]* //g; s/ *$//'
  kc get pods -o name | sort
}
# A chart with one ConfigMap.
chart() {
  mkdir -p /srv/chart/templates
  printf 'apiVersion: v2\nname: lab\nversion: 1.0.0\n' >/srv/chart/Chart.yaml
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {size: "{{ .Values.size }}"}\n' >/srv/chart/templates/map.yaml
}
end() {
  kc delete node --all --wait=false >/dev/null
  kc delete pods,pdb,replicasets,daemonsets,configmaps -l '!kept' --force --grace-period=0 >/dev/null 2>&1
  rm -rf /root/.kube /srv/manifests
}

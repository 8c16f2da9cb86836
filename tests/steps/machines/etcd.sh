# Members of etcd on one host, each by its name and the port for its clients; the next port is for other members.
# member NAME PORT STATE CLUSTER
member() {
  etcd --name "$1" --data-dir "/srv/etcd/$1" --initial-cluster-state "$3" --initial-cluster "$4" \
    --listen-client-urls "http://127.0.0.1:$2" --advertise-client-urls "http://127.0.0.1:$2" \
    --listen-peer-urls "http://127.0.0.1:$(($2 + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$(($2 + 1))" \
    >>"/run/etcd-$1.log" 2>&1 </dev/null &
  echo $! >"/run/etcd-$1.pid"
}
# Wait until a member answers.
answers() { until etcdctl --endpoints="http://127.0.0.1:$1" endpoint health >/dev/null 2>&1; do :; done; }
ctl() { etcdctl --endpoints=http://127.0.0.1:12379 "$@"; }
# What can be compared: ids are others each time.
members() { ctl member list | cut -d, -f2-4,6 | sed 's/^ //' | sort; }
end() { for each in "$@"; do kill -9 "$(cat "/run/etcd-$each.pid")" || :; done 2>/dev/null; rm -rf /srv/etcd /run/etcd-*; }
one() { member e1 12379 new e1=http://127.0.0.1:12380; answers 12379; }
two() { member e2 22379 existing e1=http://127.0.0.1:12380,e2=http://127.0.0.1:22380; answers22; }
answers22() { until ctl member list | grep -q 'started, e2'; do :; done; }
three() {
  all=e1=http://127.0.0.1:12380,e2=http://127.0.0.1:22380,e3=http://127.0.0.1:32380
  member e1 12379 new "$all"; member e2 22379 new "$all"; member e3 32379 new "$all"
  answers 12379; answers 22379; answers 32379
}

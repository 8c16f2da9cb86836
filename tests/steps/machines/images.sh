# A containerd of its own on the machine, archives of tiny images, and a registry.
SOCKET=/srv/ctd/c.sock
store() {
  mkdir -p /srv/ctd && mount -t tmpfs ctd /srv/ctd
  containerd --root /srv/ctd/root --state /srv/ctd/state --address "$SOCKET" </dev/null >/srv/ctd/log 2>&1 &
  echo $! >/srv/ctd/pid
  until ctr -a "$SOCKET" version >/dev/null 2>&1; do kill -0 "$(cat /srv/ctd/pid)"; done
}
# image FILE NAME CONTENT [docker]: an archive with one image, in the format of OCI, or of docker without digests.
image() {
  python3 - "$@" <<'END'
import hashlib, io, json, sys, tarfile
out, name, content, *docker = sys.argv[1:]
sha = lambda data: hashlib.sha256(data).hexdigest()
def packed(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for place, text in files.items():
            info = tarfile.TarInfo(place)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return data.getvalue()
layer = packed({"content": content.encode()})
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(layer)]}}).encode()
kind = "application/vnd.oci.image."
part = lambda media, data: {"mediaType": kind + media, "digest": "sha256:" + sha(data), "size": len(data)}
manifest = json.dumps({"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": part("config.v1+json", config), "layers": [part("layer.v1.tar", layer)]}).encode()
index = {"schemaVersion": 2, "manifests": [{**part("manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": name}}]}
blobs = {f"blobs/sha256/{sha(data)}": data for data in (config, manifest, layer)}
if docker:
    files = {"config.json": config, "layer.tar": layer, "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()}
else:
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
open(out, "wb").write(packed(files))
END
}
ct() { ctr -a "$SOCKET" -n k8s.io "$@"; }
images() { ct images ls -q | grep -v '^sha256:' | sort; }
registry() {
  printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: /srv/ctd/registry}}\nhttp: {addr: "127.0.0.1:5000"}\n' >/srv/ctd/registry.yml
  docker-registry serve /srv/ctd/registry.yml </dev/null >/srv/ctd/registry.log 2>&1 &
  echo $! >/srv/ctd/registry.pid
  until curl -sfo /dev/null http://127.0.0.1:5000/v2/; do kill -0 "$(cat /srv/ctd/registry.pid)"; done
}
end() {
  for each in /srv/ctd/*pid; do kill -9 "$(cat "$each")"; done
  until umount -l /srv/ctd; do :; done
  rm -rf /srv/ctd /srv/*.tar /opt/containerd
}

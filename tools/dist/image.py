#!/usr/bin/env python3
"""An OCI image with one layer, from the folder that pack.sh left: image.py DIST VERSION

The base is empty: the programs need the machine's C library alone, which is this Debian's. Written by hand because no tool
without a daemon writes the health check, which Docker reads from an image's configuration, and equal bytes come for free.
Standard library only. SOURCE_DATE_EPOCH is the time of every file and of the image."""
import datetime, gzip, hashlib, io, json, os, subprocess, sys, tarfile

DIST, VERSION = sys.argv[1:]
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
USER = 10001
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2")
TEXTS = {
    "etc/passwd": f"root:x:0:0:root:/:/nologin\nevenkeel:x:{USER}:{USER}:evenkeel:/var/lib/evenkeel:/nologin\n",
    "etc/group": f"root:x:0:\nevenkeel:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
CONFIG = {
    "User": f"{USER}:{USER}",
    "ExposedPorts": {"8080/tcp": {}},
    # Every interface of the container; which of the host's is decided when it runs.
    "Env": ["PATH=/evenkeel/bin", "HOME=/var/lib/evenkeel", "EVENKEEL_HOST=0.0.0.0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
    "Entrypoint": ["/evenkeel/bin/evenkeel", "serve"],
    "WorkingDir": "/var/lib/evenkeel",
    "StopSignal": "SIGTERM",
    "Labels": {"org.opencontainers.image.title": "evenkeel", "org.opencontainers.image.version": VERSION,
               "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.base.name": "scratch"},
    # Nanoseconds. A large model is loaded in minutes.
    "Healthcheck": {"Test": ["CMD", "/evenkeel/bin/evenkeel", "ps", "--ready"], "Interval": 30 * 10**9, "Timeout": 5 * 10**9,
                    "StartPeriod": 1800 * 10**9, "Retries": 3},
}


def layer():
    """The layer's tar, uncompressed."""
    out, made = io.BytesIO(), set()
    tar = tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT)

    def entry(name, mode, kind=tarfile.REGTYPE, data=b"", owner=0, link=""):
        info = tarfile.TarInfo(name)
        info.mode, info.type, info.size, info.uid, info.gid, info.mtime, info.linkname = mode, kind, len(data), owner, owner, EPOCH, link
        tar.addfile(info, io.BytesIO(data))

    def folder(name, mode=0o755, owner=0):
        if name and name not in made:
            folder(os.path.dirname(name))
            made.add(name)
            entry(name, mode, tarfile.DIRTYPE, owner=owner)

    def file(name, path, mode=0o644):
        folder(os.path.dirname(name))
        with open(path, "rb") as f:
            entry(name, mode, data=f.read())

    for name, text in TEXTS.items():
        folder(os.path.dirname(name))
        entry(name, 0o644, data=text.encode())
    file("etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt")
    file("lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2", 0o755)
    for library in LIBRARIES:
        file("lib/x86_64-linux-gnu/" + library, "/lib/x86_64-linux-gnu/" + library, 0o755)
    tree = os.path.join(DIST, "evenkeel-tree", "evenkeel")
    for here, folders, files in os.walk(tree):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(here, name)
            if not os.path.relpath(path, tree).startswith(("share/man", "share/zsh", "share/fish", "share/bash", "evenkeel.service")):
                file(os.path.join("evenkeel", os.path.relpath(path, tree)), path, 0o755 if os.path.basename(here) == "bin" else 0o644)
    file("evenkeel/licences/glibc", "/usr/share/doc/libc6/copyright")
    folder("tmp", 0o1777)
    for name in ("dev", "models", "proc", "sys"):
        folder(name)
    folder("var/lib/evenkeel", 0o700, USER)
    tar.close()
    return out.getvalue()


def main():
    blobs = {}

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def text(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    tar = layer()
    packed = gzip.compress(tar, 9, mtime=0)
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layer_entry = blob("layer.v1.tar+gzip", packed)
    libc = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "libc6"], check=True, capture_output=True, text=True).stdout
    config = blob("config.v1+json", text({
        "created": created, "architecture": "amd64", "os": "linux", "config": CONFIG,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        "history": [{"created": created, "created_by": f"evenkeel {VERSION} by tools/dist/image.py, glibc {libc}"}]}))
    manifest = blob("manifest.v1+json", text({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                                              "config": config, "layers": [layer_entry]}))
    manifest["annotations"] = {"org.opencontainers.image.ref.name": VERSION}
    files = {"oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text({"schemaVersion": 2, "manifests": [manifest]}), **blobs}
    path = os.path.join(DIST, f"evenkeel-{VERSION}-x86_64-oci.tar")
    with tarfile.open(path + ".new", "w", format=tarfile.GNU_FORMAT) as out:
        for name in ("blobs", "blobs/sha256"):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, EPOCH
            out.addfile(info)
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.mode, info.size, info.mtime = 0o644, len(files[name]), EPOCH
            out.addfile(info, io.BytesIO(files[name]))
    os.replace(path + ".new", path)
    print(f"  {path}: {os.path.getsize(path)} bytes, the layer {len(packed)}")


main()

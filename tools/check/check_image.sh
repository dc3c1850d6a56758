#!/usr/bin/env bash
# The OCI image that `make dist` left in build/dist: at most 100 MB, read by umoci, and run as its configuration says with a
# read-only root, without a network. Needs root and umoci. Usage: check_image.sh BUILD_DIR
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
image=$(find build/dist -maxdepth 1 -name 'evenkeel-*-x86_64-oci.tar' 2>/dev/null)
[ -n "$image" ] || { echo "no image in build/dist (make dist): not run"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "namespaces and chroot need root: not run"; exit 77; }
command -v umoci >/dev/null || { echo "umoci is not installed: not run"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf --one-file-system "$dir"' EXIT
fail() { echo "FAIL $*"; echo "0 passed, 1 failed"; exit 1; }
size=$(stat -c %s "$image")
[ "$size" -le 100000000 ] || fail "the image has $size bytes, more than 100 MB"
echo "measured: image of $size bytes"
version=${image##*/evenkeel-} version=${version%-x86_64-oci.tar}
mkdir "$dir/layout" && tar -xf "$image" -C "$dir/layout" || fail "the archive is not read"
umoci unpack --image "$dir/layout:$version" "$dir/bundle" >"$dir/log" 2>&1 || fail "umoci: $(tail -n 3 "$dir/log")"
python3 - "$dir/layout" "$dir/config.json" <<'TEXT' || fail "no configuration"
import json, shutil, sys
blob = lambda e: f"{sys.argv[1]}/blobs/{e['digest'].replace(':', '/')}"
manifest = json.load(open(blob(json.load(open(sys.argv[1] + "/index.json"))["manifests"][0])))
shutil.copyfile(blob(manifest["config"]), sys.argv[2])
TEXT
cat >"$dir/inside" <<TEXT
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x41))'
root='$dir/bundle/rootfs'
mount --make-rprivate / && mount --bind "\$root" "\$root" && mount -o remount,bind,ro "\$root" && mount -t proc proc "\$root/proc" &&
  mount -t tmpfs -o mode=1777 tmpfs "\$root/tmp" && mount -t tmpfs tmpfs "\$root/dev" || exit 9
for d in null zero urandom; do touch "\$root/dev/\$d" && mount --bind /dev/\$d "\$root/dev/\$d"; done
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/e2e/image.py '$dir/bundle' '$dir/config.json' docs/pocket-curves.png
TEXT
unshare -nm bash "$dir/inside"

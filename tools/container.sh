#!/usr/bin/env bash
# Builds deploy/Containerfile and runs the image: health, an answer, the user, the memory limit, a graceful stop. Not part of
# `make check`: it compiles everything once more. Needs podman, and the image debian:12-slim or debootstrap, which makes one
# from Debian's archive. Usage: container.sh BUILD_DIR [IMAGE: one that is built already]
set -u
cd "$(dirname "$0")/.." || exit
command -v podman >/dev/null || { echo "no podman (Debian: podman runc): not run"; exit 77; }
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
dir=$(mktemp -d); image=${2:-} name=evenkeel-check-$$ port=18$((RANDOM % 900 + 100)) passed=0 failed=0
trap 'podman rm -f $name >/dev/null 2>&1; rm -rf "$dir"' EXIT
check() { # name, condition's result
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}

if [ -z "$image" ]; then
  if ! podman image exists docker.io/library/debian:12-slim; then
    command -v debootstrap >/dev/null || { echo "no image debian:12-slim and no debootstrap: not run"; exit 77; }
    debootstrap --variant=minbase bookworm "$dir/debian" >"$dir/log" 2>&1 &&
      tar -C "$dir/debian" -c . | podman import - docker.io/library/debian:12-slim >>"$dir/log" 2>&1 ||
      { echo "no base image: $(tail -n 1 "$dir/log"): not run"; exit 77; }
  fi
  image=localhost/evenkeel
  podman build --isolation chroot --network host --pull=never -f deploy/Containerfile -t $image . >"$dir/log" 2>&1
  check "the image is built: $(tail -n 3 "$dir/log")" $?
fi

# Limits that may only be lowered are given, so that a machine within a machine can run it too.
runtime=$(command -v runc || command -v crun)
podman --runtime "$runtime" run -d --name $name --network host --read-only --cap-drop=all --security-opt=no-new-privileges --memory 512m --ulimit nofile=8192:8192 --ulimit nproc=1000:1000 \
  "$image" --port $port >"$dir/log" 2>&1 || { echo "containers cannot run here: $(tail -n 1 "$dir/log"): not run"; exit 77; }
for _ in $(seq 100); do
  curl -fs http://127.0.0.1:$port/ready >/dev/null && break
  sleep 0.2
done
curl -fs http://127.0.0.1:$port/health | grep -q '"status":"ok"'; check "health" $?
curl -fs http://127.0.0.1:$port/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":8}' |
  grep -q '"completion_tokens":8'; check "an answer" $?
[ "$(podman top $name user | tail -n 1)" = 10001 ]; check "the user is 10001: $(podman top $name user | tail -n 1)" $?
[ "$(curl -fs http://127.0.0.1:$port/metrics | awk '$1 == "evenkeel_request_memory_limit_bytes" {print $2}')" = 67108864 ]
check "the container's memory limit counts" $?
podman stop -t 30 $name >/dev/null; [ "$(podman inspect $name --format '{{.State.ExitCode}}')" = 0 ]; check "it stops with 0" $?
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# The files of deploy/: nginx and HAProxy run before two replicas, systemd reads the unit, the container file's build
# commands and package lists fit this tree. Usage: check_deploy.sh BUILD_DIR
# tier: all
# runs: ports
set -u
cd "$(dirname "$0")/../.." || exit
build=$1
case $build in *san) echo "two sanitized servers take minutes: not run"; exit 77 ;; esac
[ -x "$build/evenkeel" ] || { echo "no $build/evenkeel: not run"; exit 77; }
[ -e models/pocket/config.json ] || { echo "no models/pocket: not run"; exit 77; }
passed=0; failed=0; skipped=0
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $*"; }
skip() { skipped=$((skipped + 1)); echo "skipped $*"; }

# --- proxies ---
for proxy in nginx haproxy; do
  if ! command -v $proxy openssl >/dev/null || [ "$(command -v $proxy openssl | wc -l)" -ne 2 ]; then
    skip "$proxy: not installed (make setup-checks)"
    continue
  fi
  PYTHONDONTWRITEBYTECODE=1 timeout 400 python3 tests/e2e/proxies.py "$build/evenkeel" models/pocket $proxy >"$dir/log" 2>&1
  last=$(tail -n 1 "$dir/log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2])); grep FAIL "$dir/log"
  else
    bad "$proxy: $(tail -n 5 "$dir/log")"
  fi
done

# --- what routers read: manifests, llm-d, vLLM's router ---
for python in python3 /usr/bin/python3 none; do
  $python -c 'import yaml' 2>/dev/null && break
done
if [ $python != none ]; then
  PYTHONDONTWRITEBYTECODE=1 timeout 400 $python tests/e2e/manifests.py "$build/evenkeel" models/pocket >"$dir/log" 2>&1
  last=$(tail -n 1 "$dir/log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2])); grep FAIL "$dir/log"
  else
    bad "manifests: $(tail -n 5 "$dir/log")"
  fi
else
  skip "manifests: python3-yaml is not installed (make setup-checks)"
fi

# --- systemd ---
if command -v systemd-analyze >/dev/null; then
  sed "s#/usr/local/bin/evenkeel#$PWD/$build/evenkeel#" deploy/evenkeel.service >"$dir/evenkeel.service"
  said=$(systemd-analyze verify "$dir/evenkeel.service" 2>&1 | grep evenkeel.service)
  if [ -z "$said" ]; then good; else bad "systemd-analyze verify: $said"; fi
  if systemd-analyze security --offline=true --threshold=20 deploy/evenkeel.service >"$dir/log" 2>&1; then good
  else bad "systemd-analyze security: exposure above 2.0: $(tail -n 1 "$dir/log")"; fi
else
  skip "the systemd unit: systemd-analyze is not installed"
fi
# Memory holds prompts and keys; a start that fails for good is not tried for ever.
for line in LimitCORE=0 MemoryMax= TasksMax= StartLimitIntervalSec= StartLimitBurst=; do
  if grep -q "^$line" deploy/evenkeel.service; then good; else bad "the unit has no $line"; fi
done
# The lines that documents give to run the image, with what is continued on the next one.
for file in deploy/Containerfile docs/PROXIES.md; do
  line=$(sed -e ':a' -e '/\\$/N; s/\\\n#* */ /; ta' "$file" | grep 'podman run ')
  [ -n "$line" ] || bad "$file does not say how the image is run"
  for flag in --read-only --cap-drop=all --security-opt=no-new-privileges; do
    if [[ $line == *" $flag "* ]]; then good; else bad "$file runs the image without $flag"; fi
  done
done
# Options that the unit and the container set in the environment exist.
for name in $(grep -rohE 'EVENKEEL_[A-Z_]+=' deploy | tr -d = | sort -u); do
  [ "$name" = EVENKEEL_NAME ] && continue
  option=--$(sed 's/^EVENKEEL_//; y/ABCDEFGHIJKLMNOPQRSTUVWXYZ_/abcdefghijklmnopqrstuvwxyz-/' <<<"$name")
  if "$build/evenkeel" serve --help-all | grep -E -- "^ *(-., )?$option " >/dev/null; then good; else bad "deploy/ sets $name, but serve has no $option"; fi
done

# --- container ---
# Every library that the program needs, and that its decoders look for, belongs to a package of the last stage (libc6 is in
# every image).
packages=" libc6 $(sed -n '/^FROM debian/,$p' deploy/Containerfile | grep -oE 'z?lib[a-z0-9.+-]+' | tr '\n' ' ')"
while read -r library; do
  file=$(ldd "$build/evenkeel" | awk -v name="$library" '$1 == name {print $3}')
  [ -n "$file" ] || file=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk -v name="$library" '$1 == name {print $NF; exit}')
  package=$(dpkg -S "$(readlink -f "$file")" "$file" 2>/dev/null | head -n 1 | cut -d: -f1)
  if [[ $packages == *" $package "* ]]; then good; else bad "the container lacks ${package:-the package} of $library"; fi
done < <(objdump -p "$build/evenkeel" | awk '$1 == "NEEDED" && $2 !~ /^ld-/ {print $2}'
  grep -aoE 'lib[a-z0-9_-]+\.so\.[0-9]+' "$build/evenkeel-decode" | grep -vE '^lib(c|m)\.so' | sort -u)
# The build stage's own commands, but for the installation of packages and the compilation, in a copy of the tree's files.
mkdir "$dir/src" "$dir/out"
git ls-files -z --cached --others --exclude-standard deploy models/pocket tools/setup.sh Makefile tools/make | xargs -0 cp --parents -t "$dir/src"
mkdir -p "$dir/src/build/release"
cp "$build/evenkeel" "$build/evenkeel-decode" "$dir/src/build/release/"
sed -n '1,/^FROM debian:12-slim$/p' deploy/Containerfile | sed -n 's/^RUN //p' | grep -v '^apt-get' | sed "s#/out#$dir/out#g" >"$dir/run"
sed -i "s#^make #make -o all -n #; s#^tools/setup.sh#bash -n tools/setup.sh#" "$dir/run"
if (cd "$dir/src" && bash -eu "$dir/run") >"$dir/log" 2>&1; then good; else bad "a RUN line: $(tail -n 3 "$dir/log")"; fi
if (cd / && "$dir/out/bin/evenkeel" run --max-tokens 2 hi) >/dev/null 2>"$dir/log"; then good
else bad "what the container would hold does not answer: $(cat "$dir/log")"; fi
if "$dir/out/bin/evenkeel" preprocess --image docs/pocket-curves.png >/dev/null 2>"$dir/log"; then good
else bad "what the container would hold decodes no picture: $(cat "$dir/log")"; fi
if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ "$failed" -eq 0 ]

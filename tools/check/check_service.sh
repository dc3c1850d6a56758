#!/usr/bin/env bash
# The package's service under systemd: the first process of a container made by hand, in a folder of cgroups of its own. It is
# ready when it answers, a hung server is started again, it stops, and a purge leaves nothing.
# Needs root, debootstrap, a cgroup2 to write to. Usage: check_service.sh BUILD_DIR [ROOTS: what tools/dist/roots.sh keeps]
# tier: release
set -u
cd "$(dirname "$0")/../.." || exit
roots=${2:-}
deb=$(find build/dist -maxdepth 1 -name 'evenkeel_*_amd64.deb' 2>/dev/null)
[ -n "$deb" ] || { echo "no package in build/dist (make dist): not run"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "chroot needs root: not run"; exit 77; }
command -v debootstrap >/dev/null || { echo "debootstrap is not installed: not run"; exit 77; }
tree=/sys/fs/cgroup; [ ! -d /sys/fs/cgroup/unified ] || tree=/sys/fs/cgroup/unified
group=$tree/evenkeel-check-$$
grep -q " $tree cgroup2 " /proc/mounts && mkdir "$group" 2>/dev/null || { echo "no cgroup2 to write to at $tree: not run"; exit 77; }
passed=0; failed=0
. tools/dist/roots.sh
leave_group() {
  for _ in $(seq 50); do # its last processes are still ending
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ -d "$group" ] || break
    sleep 0.1
  done
  leave
}
trap leave_group EXIT
check() { # what, exit status
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
make_root bookworm bookworm-systemd systemd,systemd-sysv || { echo "FAIL no root with systemd: $(tail -n 1 "$dir/log")"; echo "0 passed, 1 failed"; exit 1; }
cp "$deb" "$root/try/evenkeel.deb"; write_served "$root/try/served"
in_root "dpkg -i /try/evenkeel.deb" >"$dir/log" 2>&1; check "it is installed: $(tail -n 3 "$dir/log")" $?
[ -L "$root/etc/systemd/system/multi-user.target.wants/evenkeel.service" ]; check "the service is enabled" $?

cat >"$root/try/inside" <<'TEXT'
. /try/served
show() { systemctl show evenkeel -p "$1" --value; }
echo "first $(show ActiveState) $(show SubState) $(show StatusText)"
evenkeel ps --ready; echo "ready $?"
ask 8080
echo; echo "user $(stat -c %U "/proc/$(show MainPID)")"
systemctl reload evenkeel; echo "reload $?"
kill -STOP "$(show MainPID)"
for _ in $(seq 100); do [ "$(show NRestarts)" -gt 0 ] && [ "$(show ActiveState)" = active ] && break; sleep 0.2; done
echo "again $(show ActiveState) $(show NRestarts)"
evenkeel ps --ready; echo "ready again $?"
systemctl stop evenkeel; echo "stopped $(show ActiveState) $(show Result)"
journalctl -u evenkeel --no-pager | tail -n 30 >/try/journal
dpkg -P evenkeel; echo "purged $?"
TEXT
# Behind the service, so that it begins when systemd was told that the server answers; a shorter time to hang than a minute.
mkdir -p "$root/etc/systemd/system/evenkeel.service.d"
printf '[Service]\nWatchdogSec=2\nRestartSec=200ms\n' >"$root/etc/systemd/system/evenkeel.service.d/check.conf"
printf '%s\n' '[Unit]' 'After=evenkeel.service' 'Wants=evenkeel.service' '[Service]' 'Type=oneshot' \
  'ExecStart=/bin/bash -c "bash /try/inside >/try/out 2>&1; touch /try/done"' >"$root/etc/systemd/system/check.service"
ln -s ../check.service "$root/etc/systemd/system/multi-user.target.wants/check.service"
cat >"$dir/boot" <<TEXT
$up
mount --make-rprivate / && mount --bind '$root' '$root' && mount -t proc proc '$root/proc' && mount -t sysfs -o ro sysfs '$root/sys'
mount -t tmpfs tmpfs '$root/sys/fs/cgroup' && mount -t cgroup2 cgroup2 '$root/sys/fs/cgroup'
mount -t tmpfs tmpfs '$root/run'; mount -t tmpfs tmpfs '$root/dev'
for d in null zero full random urandom tty; do touch '$root/dev/'\$d; mount --bind /dev/\$d '$root/dev/'\$d; done
mkdir '$root/dev/shm' '$root/dev/pts' && mount -t devpts -o newinstance,ptmxmode=0666 devpts '$root/dev/pts'
ln -s pts/ptmx '$root/dev/ptmx'; ln -s /proc/self/fd '$root/dev/fd'
mkdir '$root/try/old' && cd '$root' && pivot_root . try/old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /bin/sh -c 'umount -l /try/old; exec /lib/systemd/systemd'
TEXT
umount "$root/proc"
(echo "$BASHPID" >"$group/cgroup.procs"; exec timeout -k 5 100 unshare -C -fpmuin --kill-child bash "$dir/boot") >"$dir/boot.log" 2>&1 & booted=$!
for _ in $(seq 900); do [ -e "$root/try/done" ] || ! kill -0 $booted 2>/dev/null && break; sleep 0.1; done
kill $booted 2>/dev/null; wait $booted 2>/dev/null
out=$root/try/out; said=$(tail -n 20 "$out" "$root/try/journal" "$dir/boot.log" 2>&1)
says() { grep -qE "$2" "$out"; check "$1: $said" $?; }
says "it is ready, with its status" '^first active running .* on port 8080: ok, '
says "it was ready" '^ready 0$'
says "it answers" '"completion_tokens":8'
says "its user" '^user evenkeel$'
says "a reload" '^reload 0$'
says "a hung server is started again" '^again active [1-9]'
says "and is ready" '^ready again 0$'
says "it stops" '^stopped inactive success$'
says "a purge" '^purged 0$'
[ ! -e "$root/var/lib/evenkeel" ]; check "a purge leaves /var/lib/evenkeel" $?
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

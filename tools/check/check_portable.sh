#!/usr/bin/env bash
# What Linux has and other systems lack is used through base/linux.h, which has what takes its place, or stands between
# #ifdef __linux__ and #endif. check_macos.sh builds the program for macOS.
# Usage: check_portable.sh [BUILD_DIR]
set -u
cd "$(dirname "$0")/../.." || exit
bad=0
users() { # pattern: files with it, neither in comments nor for Linux alone
  grep -rlE "(^|[^a-zA-Z0-9_])($1)([^a-zA-Z0-9_]|$)" src --include='*.c' --include='*.h' | grep -vE '^src/base/linux\.' | sort | while read -r f; do
    awk '/^#if/ {depth++; if (!off && /defined ?\(?__linux__|ifdef __linux__/) off = depth} /^#el/ && off == depth {off = 0} /^#elif/ && !off && /defined\(__linux__\)/ {off = depth}
         !off && !/^[[:space:]]*(\/?\*|\/\/)/ && !/^#define _GNU_SOURCE/ {sub(/\/\*.*\*\//, ""); print}
         /^#endif/ {if (off == depth) off = 0; depth--}' "$f" | grep -qE "(^|[^a-zA-Z0-9_])($1)([^a-zA-Z0-9_]|$)" && echo "$f"
  done
}
names='eventfd|accept4|SOCK_CLOEXEC|SOCK_NONBLOCK|POLLRDHUP|MSG_CMSG_CLOEXEC|pipe2|getrandom|cpu_set_t|sched_[gs]etaffinity|CPU_SET|CPU_ISSET|CPU_COUNT'
names+='|MADV_HUGEPAGE|MAP_POPULATE|mremap|st_mtim|st_ctim|renameat2|RENAME_EXCHANGE|fallocate|fdatasync|malloc_trim|memrchr|memfd_create|F_ADD_SEALS'
n=0
for f in $(users "$names"); do
  n=$((n + 1))
  grep -q '^#include "base/linux.h"' "$f" || { echo "$f uses what Linux alone has, without base/linux.h"; bad=1; }
done
none='getauxval|AT_HWCAP2?|__rlimit_resource_t|CLONE_[A-Z]+|close_range|SYS_[a-z0-9_]+|prctl|PR_SET_[A-Z_]+|SECCOMP_[A-Z_]+|LANDLOCK_[A-Z_]+|landlock_create[a-z_]*|capset'
none+='|epoll_[a-z0-9]+|signalfd|timerfd_[a-z]+|inotify_[a-z0-9]+|io_uring_[a-z]+|process_vm_readv|splice|vmsplice|sendfile|pthread_condattr_setclock'
for f in $(users "$none"); do
  echo "$f uses what Linux alone has, and base/linux.h has nothing for it: $(grep -nowE "$none" "$f" | head -n 3 | tr '\n' ' ')"
  bad=1
done
# These compile anywhere, and find nothing elsewhere.
proc=$(users '"/proc/[a-z/%]*|"/sys/[a-z/%]*' | tr '\n' ' ')
want='src/base/file.c src/base/machine/cpu.c src/cli/local/running.c src/serve/metrics.c '
[ "$proc" = "$want" ] || { echo "files that read /proc or /sys: $proc"; echo "known: $want"; bad=1; }
[ $bad -eq 0 ] && echo "$n files use base/linux.h"
exit $bad

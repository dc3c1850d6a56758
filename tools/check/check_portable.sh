#!/usr/bin/env bash
# Calls and names that Linux has and macOS lacks stand in few files, listed here with what takes their place there: what a port
# has to change, and no more. A new use belongs into one of these files, behind a function of ours. Nobody has compiled the
# program on macOS: the list is from reading, and from headers alone. Usage: check_portable.sh [BUILD_DIR]
set -u
cd "$(dirname "$0")/../.." || exit
bad=0 n=0
rooms() { # pattern, what macOS has, files
  local files hits
  # Not in comments. What is compiled for Linux alone stands between #ifdef __linux__ and #endif.
  hits=$(grep -rlE "(^|[^a-zA-Z0-9_])($1)([^a-zA-Z0-9_]|$)" src --include='*.c' --include='*.h' | sort | while read -r f; do
    awk '/^#if(def __linux__| defined ?\(?__linux__)/ {skip++} !skip && !/^[[:space:]]*(\/?\*|\/\/)/ {sub(/\/\*.*\*\//, ""); print} /^#endif/ && skip {skip--}' "$f" |
      grep -qE "(^|[^a-zA-Z0-9_])($1)([^a-zA-Z0-9_]|$)" && echo "$f"
  done)
  files=$(tr -s ' \n' '\n' <<<"$3" | grep . | sort)
  all+=$hits$'\n'
  n=$((n + 1))
  [ "$hits" = "$files" ] && return
  echo "Linux's $1 (macOS: $2) in files that the list in $0 does not have, or no longer in files that it has:"
  diff <(echo "$files") <(echo "$hits") | grep '^[<>]'
  bad=1
}
all=
rooms 'eventfd' 'a pipe' \
  'src/cache/held.c src/capi/queue.c src/open/remote.c src/serve/events/events.c src/serve/threads/mailbox.c src/serve/threads/workers.c'
rooms 'accept4|SOCK_CLOEXEC|SOCK_NONBLOCK|POLLRDHUP|MSG_NOSIGNAL' 'accept, fcntl, SO_NOSIGPIPE' \
  'src/base/notify.c src/cache/shared/link.c src/cli/local/ask.c src/helper/main.c src/media/locked/helper.c
   src/media/locked/helper_start.c src/serve/events/peers.c src/serve/fetch/fetch.c src/serve/fetch/own_address.c
   src/serve/http/bound.c src/serve/http/http.c src/serve/http/http_conn.c src/serve/http/http_reply.c'
rooms 'pipe2' 'pipe, fcntl' \
  'src/cli/run/editor.c src/helper/main.c src/media/locked/child.c src/media/locked/helper_says.c'
rooms 'getrandom' 'getentropy' \
  'src/base/hash/rng.c'
rooms 'cpu_set_t|sched_getaffinity|sched_setaffinity|CPU_SET|CPU_ISSET|CPU_COUNT' 'none: threads are not bound' \
  'src/base/machine/cpu.c src/base/machine/nodes.c src/base/machine/pool.c src/helper/one_processor.c'
rooms 'getauxval|AT_HWCAP2?' 'sysctlbyname' \
  'src/base/machine/cpu.c'
rooms 'MADV_HUGEPAGE|MAP_POPULATE|mremap|MADV_POPULATE_WRITE' 'none: a slower way' \
  'src/base/alloc.c src/engine/executor_cpu.c src/helper/work.c src/media/locked/desk.c src/serve/http/body.c'
rooms 'st_mtim|st_ctim' 'st_mtimespec, st_ctimespec' \
  'src/model/weights/digest.c src/model/weights/packed.c src/serve/store/response_files.c'
rooms 'renameat2|RENAME_EXCHANGE|fallocate' 'renamex_np, F_PREALLOCATE' \
  'src/convert/outdir.c'
rooms 'fdatasync' 'fcntl F_FULLFSYNC' \
  'src/batch/part.c src/hub/blob.c src/receipts/log.c'
rooms '__rlimit_resource_t' 'int' \
  'src/base/machine/cpu.c'
rooms 'malloc_trim' 'malloc_zone_pressure_relief' \
  'src/serve/prepare.c'
rooms 'memfd_create|F_ADD_SEALS|F_SEAL_[A-Z]+' 'shm_open, without seals' \
  'src/media/locked/child.c'
rooms 'CLONE_VM|CLONE_VFORK|close_range' 'posix_spawn' ''
rooms 'prctl|SECCOMP_[A-Z_]+|LANDLOCK_[A-Z_]+|landlock_[a-z_]+|capset' 'sandbox_init' \
  'src/helper/main.c src/media/locked/lock.c'
rooms 'PR_SET_[A-Z_]+' 'none' \
  'src/helper/main.c src/media/locked/lock.c'
rooms 'epoll_[a-z0-9]+|signalfd|timerfd_[a-z]+|inotify_[a-z0-9]+|SYS_futex|io_uring_[a-z]+|process_vm_readv|splice|vmsplice|tee|sendfile' 'kqueue; nothing here uses them' \
  'src/media/locked/lock.c'
rooms '"/proc/[a-z/%]*|"/sys/[a-z/%]*' 'proc_pidinfo, sysctl' \
  'src/base/machine/cpu.c src/base/own_folder.c src/cli/local/ask.c src/cli/local/running.c src/media/locked/child.c
   src/serve/metrics.c'
files=$(sort -u <<<"$all" | grep -c .)
[ $bad -eq 0 ] && echo "$n kinds of calls in $files files"
exit $bad

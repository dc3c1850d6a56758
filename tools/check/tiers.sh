# Tiers and chains. Read by run.sh; CONTRIBUTING.md has the table with the reasons. A test says itself where it belongs, by
# a line of its own near its head: `# NAME: VALUE` in a script of tools/check, `/* NAME: VALUE */` in a test program.
#
#   tier: all       not in `make check`, but in `make check-all`
#   tier: release   in `make check-release` alone
#   runs: alone     behind everything else, with nothing beside it: it measures time
#   runs: quiet     together, behind everything else: it has deadlines and mostly waits
#   runs: ports     one after the other in this chain: documented ports
#   runs: make      one after the other in this chain: targets of make that write into the build
#   threads: all    a script whose programs compute with as many threads as by themselves; others' with one
declare -A tier_of runs_of threads_of
while IFS=: read -r path line; do
  value=${line##*: } value=${value%% *}
  name=${path#tools/check/} name=${name%.c}
  case $line in *tier:*) tier_of[$name]=$value ;; *threads:*) threads_of[$name]=$value ;; *) runs_of[$name]=$value ;; esac
done < <(grep -E '^(#|/\*) (tier: (all|release)|runs: (alone|quiet|ports|make)|threads: all)( \*/)?$' tools/check/check_*.sh tests/*/test_*.c)

in_tier() { # name
  case $TIER in
    check) [ -z "${tier_of[$1]-}" ] ;;
    all) [ "${tier_of[$1]-}" != release ] ;;
    *) return 0 ;;
  esac
}

chain_of() { # name; sets chain
  chain=${runs_of[$1]-beside}
}

# The bundled model's steps take a millisecond, of which a second thread waits the most, and a waiting thread spins: with one
# thread each, a quarter of the scripts' processor time is saved. tests/same compares numbers of threads, and the sanitizers
# keep them. A script run by hand has them all.
threads() { # script; sets EVENKEEL_THREADS
  case $build in *san) return ;; esac
  if [ -z "${threads_of[$1]-}" ]; then export EVENKEEL_THREADS=${EVENKEEL_THREADS-1}; fi
}

# Tests take and give back tens of megabytes at a time. From the system that is a page fault per 4 KiB, each of which costs
# 10 microseconds and more in a virtual machine: a third of all processor time of the tests. So they keep what they freed,
# in huge pages. Not those that measure memory or take a device's as their own, nor a sanitizer's allocator.
tunables() { # program; sets tuned
  case $build/${1##*/} in
    *san/* | */test_gpu | */test_ranks | */test_launches | */test_memory | */test_reserve | */test_large | */test_counted | */test_nodes) tuned=${GLIBC_TUNABLES-} ;;
    *) tuned="glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=4194304" ;;
  esac
}

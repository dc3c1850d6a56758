# What `make check` leaves to `make check-all`, and what may not run beside other things. Read by run.sh; CONTRIBUTING.md
# has the table with the reasons. Names are those that run.sh prints: check_x.sh, tests/LAYER/test_x.

# In `make check-all` alone: everything else is in both.
only_all="
  check_docs.sh check_install.sh check_deploy.sh check_lib.sh check_clients.sh check_gguf.sh check_compare.sh
  check_page.sh check_seeing.sh check_video.sh check_hearing.sh check_senses.sh check_program.sh check_terminal.sh
  check_ollama.sh check_tenants.sh check_run.sh check_calls.sh check_inspect.sh check_journal.sh check_deep.sh check_media.sh
  check_drafts.sh check_damage.sh check_hostile.sh check_devices.sh check_hub.sh check_load.sh check_resume.sh check_chaos.sh
  check_shared.sh check_events.sh tests/gpu/test_ranks_emulated
  check_formats.sh check_convert.sh
  tests/convert/test_between tests/convert/test_gguf tests/lib/ tests/gpu/test_gpu tests/gpu/test_tower
  tests/serve/test_prepare tests/serve/test_counted tests/model/test_minifloat_source
  tests/media/test_video tests/model/test_oracle tests/model/test_source_gguf tests/model/test_tower tests/model/test_audio"

in_tier() { # name
  local pattern
  [ "$TIER" = check ] || return 0
  for pattern in $only_all; do
    case $1 in "$pattern" | "$pattern"test_*) return 1 ;; esac
  done
  return 0
}

# alone: it measures time, or how long a server keeps others waiting. A chain: one after the other, beside other jobs.
chain_of() { # name; sets chain
  case $1 in
    tests/base/test_base | tests/serve/test_http | tests/serve/test_server | tests/serve/test_prepare | check_load.sh | \
      check_hostile.sh | check_hub.sh) chain=alone ;;
    check_docs.sh | check_deploy.sh) chain=ports ;; # documented ports
    check_lib.sh | check_install.sh) chain=make ;;  # targets of make that write into the build
    *) chain=beside ;;
  esac
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

# Sourced: what a program of ours may need from a machine.
# check_needs FILE VERSION [OBJDUMP]: the C library's own libraries alone, and no symbol that its VERSION lacks. Sets newest.
check_needs() {
  local objdump=${3:-objdump} needed
  needed=$($objdump -p "$1" | awk '$1 == "NEEDED" && $2 !~ /^(libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|libc\.so\.6|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1)$/ {print $2}')
  [ -z "$needed" ] || fail "${1##*/} needs ${needed//$'\n'/, } from the machine"
  newest=$($objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
  [ "$(printf '%s\n' "$newest" "GLIBC_$2" | sort -V | tail -n 1)" = "GLIBC_$2" ] || fail "${1##*/} has symbols of $newest, newer than $2"
}

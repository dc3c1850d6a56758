#!/usr/bin/env bash
# The release program has what keeps an overflow from becoming more: read from the file itself. Usage: check_hardened.sh BUILD_DIR
set -u
cd "$(dirname "$0")/../.." || exit
build=$1 program=$1/evenkeel
case $build in *san | *debug | *fuzz) echo "no release: not run"; exit 77 ;; esac
[ -x "$program" ] || { echo "no $program: not run"; exit 77; }
command -v readelf >/dev/null || { echo "readelf is not installed: not run"; exit 77; }
passed=0; failed=0
check() { # what, a command
  if eval "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $program: $1"; fi
}
header=$(readelf -hW "$program") segments=$(readelf -lW "$program") dynamic=$(readelf -dW "$program") symbols=$(readelf -sW --dyn-syms "$program")
check "it is no position-independent executable" 'grep -q "Type: *DYN" <<<"$header" && grep -q "FLAGS_1.*PIE" <<<"$dynamic"'
check "addresses are looked up late (no BIND_NOW)" 'grep -qE "BIND_NOW|FLAGS_1.*NOW" <<<"$dynamic"'
check "no table of pointers becomes read-only (no RELRO)" 'grep -q GNU_RELRO <<<"$segments"'
check "the stack is executable" 'grep GNU_STACK <<<"$segments" | grep -vq RWE'
check "it has a segment that is writable and executable" '! grep -E "^ +LOAD" <<<"$segments" | grep -q RWE'
check "it looks for libraries beside itself (RPATH)" '! grep -qE "RPATH|RUNPATH" <<<"$dynamic"'
check "stacks are not checked (-fstack-protector-strong)" 'grep -q __stack_chk_fail <<<"$symbols"'
check "copies are not checked (_FORTIFY_SOURCE)" '[ "$(grep -oE "__[a-z]+_chk(@|$)" <<<"$symbols" | sort -u | wc -l)" -ge 5 ]'
# Not __stack_chk_fail alone: in every layer that reads what others wrote.
for part in text hub media tensor model serve cli cache; do
  check "src/$part has no checked stacks" '[ "$(nm -A "$build/lib/ek_$part.a" 2>/dev/null | grep -c " U __stack_chk_fail")" -gt 0 ]'
done
# Each is code that starts with the program, and a package that has to be there.
check "it needs more than 14 libraries: $(ldd "$program" | wc -l)" '[ "$(ldd "$program" | wc -l)" -le 14 ]'
if [ "$(uname -m)" = x86_64 ]; then
  check "jumps may land anywhere (-fcf-protection)" 'objdump -d --no-show-raw-insn "$program" --disassemble=main | grep -q endbr64'
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

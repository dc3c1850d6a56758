#!/usr/bin/env bash
# What another machine with the same kind of processor needs to run this build, in one archive, where nothing can be installed: the
# programs without symbols, their libraries (but the C library, which must not be older there), libevenkeel with its test programs
# where they are built (tools/check/check_library_device.sh), and redis-server for tools/bench/apart.py where this machine has one.
# Usage: carry.sh BUILD_DIR FILE.tgz. There:
#   mkdir c && tar xzf FILE.tgz -C c && c/evenkeel version
# Pictures need libpng in the system's own folders: cp c/lib/libpng16.so.16 /usr/lib where it is missing.
set -euo pipefail
build=$1 file=$(realpath -m "$2") dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/lib"
for program in evenkeel evenkeel-decode; do
  strip -o "$dir/bin/$program" "$build/$program"
done
for built in libevenkeel.so.0 tests/capi/installed/many tests/capi/installed/bodies; do # beside the decoders, where it looks
  [ ! -e "$build/$built" ] || strip -o "$dir/bin/${built##*/}" "$build/$built"
done
for name in redis-server valkey-server redis-check-rdb; do # Debian has the server in redis-tools, under the last name
  command -v $name >/dev/null && cp "$(readlink -f "$(command -v $name)")" "$dir/bin/redis-server" && break
done
opened=$(ldconfig -p | sed -nE 's/^\t(libpng16\.so\.16|libjpeg\.so\.62|libz\.so\.1) .* => //p')
linked=$(ldd "$dir"/bin/* $opened | awk '$2 == "=>" && $3 ~ /^\// { print $3 }')
for library in $opened $linked; do
  case ${library##*/} in libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.*) continue ;; esac
  [ -e "$dir/lib/${library##*/}" ] || cp "$(readlink -f "$library")" "$dir/lib/${library##*/}"
done
for program in evenkeel redis-server; do # the libraries are for these alone, not for who starts them
  [ -e "$dir/bin/$program" ] || continue
  cat >"$dir/$program" <<'END'
#!/usr/bin/env bash
dir=$(dirname "$(readlink -f "$0")") name=${0##*/}
export LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec -a "$name" "$dir/bin/$name" "$@"
END
  chmod +x "$dir/$program"
done
tar czf "$file" -C "$dir" .

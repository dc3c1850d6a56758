#!/usr/bin/env bash
# Makes what the programs of a tarball and the library of a wheel are linked against: Debian 11's C library, and four
# libraries of Debian 12's sources: three that it has no archives of, and jansson, whose archive fits into no library. From the
# mirror that this machine's apt has, checked by apt against Debian's keys.
# Usage: libraries.sh DIR FETCHED [aarch64: CC is its cross compiler, and the archives of the other libraries come too]
#   FETCHED   what comes from the mirror; kept, so that a second build fetches nothing
#   DIR       made anew: libc/ is the C library's, static/ holds include/ and lib/ of the four, source/ their texts, and
#             archives/ what this machine has itself for its own processor
set -euo pipefail
dir=$(realpath -m "$1") fetched=$(realpath -m "$2") arch=${3:-x86_64}
# linux-libc-dev, crypt: libc6-dev needs them.
binaries=(libc6 libc6-dev linux-libc-dev libcrypt1 libcrypt-dev libgcc-s1)
sources=(libsoxr mpg123 libsndfile jansson)
archives=() debian=amd64 host=() protection=-fcf-protection
if [ "$arch" = aarch64 ]; then
  archives=(libevent-dev libsqlite3-dev libedit-dev libbsd-dev libmd-dev libncurses-dev libssl-dev libjpeg62-turbo-dev libpng-dev
    zlib1g-dev libwebp-dev libgif-dev libflac-dev libvorbis-dev libogg-dev libopus-dev libmp3lame-dev libmsgpack-dev libcurl4-openssl-dev
    libheif-dev)
  debian=arm64 host=(--host=aarch64-linux-gnu) protection=-mbranch-protection=standard
fi
say() { echo "  $*"; }
fail() { echo "dist: $*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || fail "a tarball is made on x86_64, this is $(uname -m)"
[ "$(. /etc/os-release && echo "${VERSION_CODENAME-}")" = bookworm ] || fail "a tarball is made on Debian 12 (bookworm): \
a newer C library's headers name functions that Debian 11 lacks, and archives differ"

fetch() {
  local uris
  uris=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Component: main' | sort -u |
    awk '$2 ~ /^bookworm(-security|-updates)?$/')
  [ -n "$uris" ] || fail "apt has no list of Debian 12's packages: run apt-get update"
  local mirror; mirror=$(awk '$2 == "bookworm" {print $1; exit}' <<<"$uris")
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  rm -rf "$fetched" && mkdir -p "$fetched"/apt/{lists,cache/archives}/partial
  : >"$fetched/apt/status"
  { echo "deb [signed-by=$key] $mirror bullseye main"
    awk -v key=$key '{print "deb-src [signed-by=" key "] " $1 " " $2 " main"}' <<<"$uris"
    [ ${#archives[@]} -eq 0 ] || awk -v key=$key '{print "deb [signed-by=" key "] " $1 " " $2 " main"}' <<<"$uris"
  } >"$fetched/apt/sources.list"
  printf '%s\n' "Dir::Etc::sourcelist \"$fetched/apt/sources.list\";" 'Dir::Etc::sourceparts "-";' \
    "Dir::State::lists \"$fetched/apt/lists\";" "Dir::State::status \"$fetched/apt/status\";" \
    "Dir::Cache \"$fetched/apt/cache\";" 'APT::Sandbox::User "root";' \
    "APT::Architecture \"$debian\";" "APT::Architectures \"$debian\";" >"$fetched/apt/conf"
  (export APT_CONFIG=$fetched/apt/conf
    cd "$fetched"
    mkdir -p archives
    apt-get update -qq && apt-get download -qq "${binaries[@]/%//bullseye}" &&
      { [ ${#archives[@]} -eq 0 ] || (cd archives && apt-get download -qq "${archives[@]}"); } && apt-get source -qq --download-only "${sources[@]}") \
    >"$fetched/log" 2>&1 || fail "the mirror gives not all: $(tail -n 2 "$fetched/log")"
  rm -rf "$fetched/apt"
  : >"$fetched/whole"
}
whole() { # what is kept may be of an older version of this file
  local s
  [ -e "$fetched/whole" ] || return
  for s in "${archives[@]}"; do compgen -G "$fetched/archives/${s}_*.deb" >/dev/null || return; done
  for s in "${sources[@]}"; do compgen -G "$fetched/${s}_*.dsc" >/dev/null || return; done
}
if ! whole; then
  say "fetch Debian 11's C library and the sources of ${sources[*]}"
  fetch
fi

rm -rf "$dir" && mkdir -p "$dir"/{libc,static,source,archives}
for deb in "$fetched"/*.deb; do dpkg -x "$deb" "$dir/libc"; done
[ ${#archives[@]} -eq 0 ] || for deb in "$fetched"/archives/*.deb; do dpkg -x "$deb" "$dir/archives"; done
# Links of the C library that begin at / would lead to this machine's.
find "$dir/libc" -type l -lname '/*' | while read -r link; do
  ln -sfn --relative "$dir/libc$(readlink "$link")" "$link"
done

export CC=${CC:-gcc} CFLAGS="-O2 -fPIC -fstack-protector-strong $protection -D_FORTIFY_SOURCE=2 -w"
export CFLAGS+=" -ffile-prefix-map=$dir=." LC_ALL=C TZ=UTC
if [ "$arch" = aarch64 ]; then
  # What configure and cmake look for beside the four.
  found=$dir/archives/usr
  export CPPFLAGS="-I$found/include -I$found/include/aarch64-linux-gnu" LDFLAGS="-L$found/lib/aarch64-linux-gnu"
  export PKG_CONFIG_SYSROOT_DIR=$dir/archives PKG_CONFIG_LIBDIR=$found/lib/aarch64-linux-gnu/pkgconfig:$dir/static/lib/pkgconfig
fi
cd "$dir/source"
for s in "${sources[@]}"; do dpkg-source -x "$fetched"/"$s"_*.dsc "$s" >"$s.log" 2>&1 || fail "$s: $(tail -n 1 "$s.log")"; done

cross=()
if [ "$arch" = aarch64 ]; then
  cross=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_LIBRARY_PATH="$dir/archives/usr/lib/aarch64-linux-gnu"
    -DCMAKE_FIND_ROOT_PATH="$dir/static;$dir/archives" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY
    -DCMAKE_C_FLAGS="$CFLAGS $CPPFLAGS")
fi
build() { # name, a function; its output is shown when it fails
  say "build $1"
  "$2" >"$1.log" 2>&1 || { tail -n 20 "$1.log" >&2; fail "$1 does not compile"; }
}
cmake_one() { # folder, options
  cmake -S "$1" -B "$1/build" -DCMAKE_INSTALL_PREFIX="$dir/static" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DBUILD_SHARED_LIBS=OFF -DCMAKE_C_COMPILER="${CC##* }" \
    -DCMAKE_PREFIX_PATH="$dir/static;$dir/archives/usr" "${cross[@]}" "${@:2}" &&
    make -C "$1/build" && make -C "$1/build" install
}
# Without OpenMP: the helper has one processor.
soxr() { cmake_one libsoxr -DWITH_OPENMP=OFF -DBUILD_TESTS=OFF -DBUILD_EXAMPLES=OFF -DWITH_LSR_BINDINGS=OFF; }
mpg123() {
  (cd mpg123 && ./configure "${host[@]}" --prefix="$dir/static" --libdir="$dir/static/lib" --disable-shared --enable-static \
    --disable-components --enable-libmpg123 && make && make install)
}
sndfile() {
  cmake_one libsndfile -DENABLE_MPEG=ON -DBUILD_PROGRAMS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_TESTING=OFF \
    -DENABLE_CPACK=OFF -DINSTALL_MANPAGES=OFF
  grep -q 'define HAVE_MPEG 1' libsndfile/build/src/config.h # it goes on without, if it does not find the two libraries
}
jansson() { cmake_one jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON; }
build jansson jansson
build soxr soxr
build mpg123 mpg123
build sndfile sndfile
: >"$dir/whole"

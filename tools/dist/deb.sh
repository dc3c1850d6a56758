#!/usr/bin/env bash
# The packages for Debian and Ubuntu, from the folder that pack.sh left: program, library, headers, Python package. One of
# each serves all releases from Debian 11 on. Usage: deb.sh DIST VERSION   (SOURCE_DATE_EPOCH: the time of every file)
# Without DIST/libevenkeel.so the program's package alone.
set -euo pipefail
dist=$1 version=$2
here=$(dirname "$0")/deb tree=$dist/evenkeel-tree/evenkeel
. "$here/common.sh"

# --- evenkeel ---
begin evenkeel
share=$root/usr/share
install -d "$root"/{etc,usr/{bin,libexec/evenkeel,lib/{sysusers.d,tmpfiles.d,systemd/system}}} "$share/evenkeel"
install -m 755 "$tree/bin/evenkeel" "$root/usr/bin"
install -m 755 "$tree/bin/evenkeel-decode" "$root/usr/libexec/evenkeel"
cp -r "$tree/share/evenkeel/models" "$share/evenkeel"
cp -r "$tree"/share/{man,bash-completion} "$share"
install -d "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
cp "$tree/share/zsh/site-functions/_evenkeel" "$share/zsh/vendor-completions"
cp "$tree/share/fish/vendor_completions.d/evenkeel.fish" "$share/fish/vendor_completions.d"
gzip -9n "$share"/man/man1/*.1
gzip -9n <"$tree/CHANGELOG.md" >"$share/doc/evenkeel/NEWS.gz"

# A user that is there in place of one for each start: files of the disk cache and journals have an owner with a name.
unit=$root/usr/lib/systemd/system/evenkeel.service
sed -e '1,/^\[Unit\]/{/^#/d}' -e 's#/usr/local/bin#/usr/bin#; s#^DynamicUser=yes$#User=evenkeel\nGroup=evenkeel#' deploy/evenkeel.service |
  sed '1i # Options stand in /etc/evenkeel.env as EVENKEEL_NAME=value (man evenkeel-serve).' >"$unit"
for line in '^User=evenkeel$' '^ExecStart=/usr/bin/evenkeel serve$' '^\[Unit\]$'; do
  grep -q "$line" "$unit" || { echo "deb: the unit has no line $line" >&2; exit 1; }
done
install -m 644 "$here/sysusers" "$root/usr/lib/sysusers.d/evenkeel.conf"
install -m 644 "$here/tmpfiles" "$root/usr/lib/tmpfiles.d/evenkeel.conf"
install -m 600 "$here/evenkeel.env" "$root/etc/evenkeel.env"
echo /etc/evenkeel.env >"$root/DEBIAN/conffiles"
install -m 755 "$here"/{postinst,prerm,postrm} "$root/DEBIAN"
licences evenkeel 'non-standard-file-perm 0600 != 0644 [etc/evenkeel.env]' # keys may stand there
finish evenkeel amd64 <<'TEXT'
Depends: libc6 (>= 2.30), passwd
Recommends: libcurl4
Suggests: libheif1
Section: science
Description: exact inference server for Gemma 4
 evenkeel serves Google's Gemma 4 models over the APIs of OpenAI, Anthropic
 and Ollama, on CPUs and NVIDIA GPUs. The bits of an answer are the same
 alone and in a batch, early and late, in chunks and at once, on any number
 of threads.
 .
 The package holds a small model, the decoders of pictures and sounds, and
 a service that listens on 127.0.0.1:8080.
TEXT
[ -e "$dist/libevenkeel.so" ] || exit 0

# --- the library. Not in the folder of an architecture: it finds models and decoders from /usr/lib as the program does. ---
begin libevenkeel0
install -d "$root/usr/lib"
install -m 644 "$dist/libevenkeel.so" "$root/usr/lib/libevenkeel.so.$version"
ln -s "libevenkeel.so.$version" "$root/usr/lib/libevenkeel.so.0"
echo "libevenkeel 0 libevenkeel0 (>= $version)" >"$root/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
licences libevenkeel0
finish libevenkeel0 amd64 <<'TEXT'
Depends: libc6 (>= 2.31)
Recommends: evenkeel
Section: libs
Description: exact inference of Gemma 4, shared library
 Chats, raw requests and transformer operators whose bits do not depend on
 the company of a request, its time, or the number of threads.
 .
 The package evenkeel has a small model and the decoders of pictures and
 sounds, which this library uses where they are.
TEXT

begin libevenkeel-dev
doc=$root/usr/share/doc/libevenkeel-dev
install -d "$root/usr"/{include,lib/pkgconfig} "$doc/examples"
install -m 644 include/evenkeel.h include/evenkeel_ops.h "$root/usr/include"
ln -s libevenkeel.so.0 "$root/usr/lib/libevenkeel.so"
install -m 644 examples/engine/*.c "$doc/examples"
printf '%s\n' 'prefix=/usr' 'libdir=${prefix}/lib' 'includedir=${prefix}/include' '' 'Name: evenkeel' \
  'Description: Inference of Gemma 4 and its operators, bit for bit the same in any company' "Version: $version" \
  'Libs: -L${libdir} -levenkeel' 'Cflags: -I${includedir}' >"$root/usr/lib/pkgconfig/evenkeel.pc"
finish libevenkeel-dev amd64 <<TEXT
Depends: libevenkeel0 (= $version), libc6-dev
Section: libdevel
Description: exact inference of Gemma 4, headers
 Headers, pkg-config file and examples of libevenkeel.
TEXT

begin python3-evenkeel
install -d "$root/usr/lib/python3/dist-packages/evenkeel"
install -m 644 python/evenkeel/*.py python/evenkeel/py.typed "$root/usr/lib/python3/dist-packages/evenkeel"
install -m 755 "$here/python/"{postinst,prerm} "$root/DEBIAN"
finish python3-evenkeel all <<TEXT
Depends: python3 (>= 3.8), libevenkeel0 (= $version)
Recommends: evenkeel
Suggests: python3-numpy
Section: python
Description: exact inference of Gemma 4, Python package
 Models, chats with tools and streams, tokenizer and logits over
 libevenkeel, without a compiler.
TEXT

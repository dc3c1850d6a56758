#!/usr/bin/env bash
# The package evenkeel for Debian and Ubuntu, from the folder that pack.sh left: one for all releases from Debian 11 on.
# Usage: deb.sh DIST VERSION   (SOURCE_DATE_EPOCH: the time of every file)
set -euo pipefail
dist=$1 version=$2
: "${SOURCE_DATE_EPOCH:?}"
here=$(dirname "$0")/deb tree=$dist/evenkeel-tree/evenkeel root=$dist/evenkeel-deb
# Whoever publishes a package names an address that reads mail.
maintainer=${DIST_MAINTAINER:-"evenkeel maintainers <maintainers@evenkeel.example.org>"}
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
rm -rf "$root"
share=$root/usr/share doc=$root/usr/share/doc/evenkeel
install -d "$root"/{DEBIAN,etc,usr/{bin,libexec/evenkeel,lib/{sysusers.d,tmpfiles.d,systemd/system}}} \
  "$share"/{evenkeel,lintian/overrides} "$doc"
install -m 755 "$tree/bin/evenkeel" "$root/usr/bin"
install -m 755 "$tree/bin/evenkeel-decode" "$root/usr/libexec/evenkeel"
cp -r "$tree/share/evenkeel/models" "$share/evenkeel"
cp -r "$tree"/share/{man,bash-completion} "$share"
install -d "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
cp "$tree/share/zsh/site-functions/_evenkeel" "$share/zsh/vendor-completions"
cp "$tree/share/fish/vendor_completions.d/evenkeel.fish" "$share/fish/vendor_completions.d"
gzip -9n "$share"/man/man1/*.1

# A user that is there in place of one for each start: files of the disk cache and journals have an owner with a name.
sed -e '1d; s#^\# (docs#\# (docs#; s#/usr/local/bin#/usr/bin#; s#^DynamicUser=yes$#User=evenkeel\nGroup=evenkeel#' \
  deploy/evenkeel.service | sed '1i # Options stand in /etc/evenkeel.env as EVENKEEL_NAME=value' >"$root/usr/lib/systemd/system/evenkeel.service"
for line in '^User=evenkeel$' '^ExecStart=/usr/bin/evenkeel serve$' '^\[Unit\]$'; do
  grep -q "$line" "$root/usr/lib/systemd/system/evenkeel.service" || { echo "deb: the unit has no line $line" >&2; exit 1; }
done
install -m 644 "$here/sysusers" "$root/usr/lib/sysusers.d/evenkeel.conf"
install -m 644 "$here/tmpfiles" "$root/usr/lib/tmpfiles.d/evenkeel.conf"
install -m 600 "$here/evenkeel.env" "$root/etc/evenkeel.env"
echo /etc/evenkeel.env >"$root/DEBIAN/conffiles"
install -m 755 "$here"/{postinst,prerm,postrm} "$root/DEBIAN"

# Licences: ours as Debian writes it, and those of all parts.
cat >"$doc/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: evenkeel
Comment: The programs hold libraries whose licences are in /usr/share/doc/evenkeel/licences, and which sbom.spdx.json lists.

Files: *
Copyright: 2026 the authors of evenkeel
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
TEXT
cp -r "$tree/licences" "$tree/sbom.spdx.json" "$doc"
gzip -9n <"$tree/CHANGELOG.md" >"$doc/NEWS.gz"
{ printf 'evenkeel (%s) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.gz"

# Static libraries, so that one package serves all releases; keys may stand in the file of options.
printf 'evenkeel: %s\n' 'embedded-library *' 'non-standard-file-perm 0600 != 0644 [etc/evenkeel.env]' >"$share/lintian/overrides/evenkeel"

size=$(du -k --apparent-size -s "$root" | cut -f1)
cat >"$root/DEBIAN/control" <<TEXT
Package: evenkeel
Version: $version
Architecture: amd64
Maintainer: $maintainer
Installed-Size: $size
Depends: libc6 (>= 2.30), passwd
Recommends: libcurl4
Suggests: libheif1
Section: science
Priority: optional
Description: exact inference server for Gemma 4
 evenkeel serves Google's Gemma 4 models over the APIs of OpenAI, Anthropic
 and Ollama, on CPUs and NVIDIA GPUs. The bits of an answer are the same
 alone and in a batch, early and late, in chunks and at once, on any number
 of threads.
 .
 The package holds a small model, the decoders of pictures and sounds, and
 a service that listens on 127.0.0.1:8080.
TEXT
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
deb=$dist/evenkeel_${version}_amd64.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
(cd "$dist" && sha256sum "${deb##*/}" >"${deb##*/}.sha256")
echo "  $deb: $(stat -c %s "$deb") bytes"

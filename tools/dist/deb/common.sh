# What the packages have in common; deb.sh reads this file. dist, version, tree are set.
: "${SOURCE_DATE_EPOCH:?}"
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
# Whoever publishes a package names an address that reads mail.
maintainer=${DIST_MAINTAINER:-"evenkeel maintainers <maintainers@evenkeel.example.org>"}

# Sets root, an empty folder of package NAME, with its copyright and changelog.
begin() { # NAME
  root=$dist/debs/$1
  rm -rf "$root"
  local doc=$root/usr/share/doc/$1
  install -d "$root/DEBIAN" "$doc"
  cat >"$doc/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: evenkeel
Comment: Programs and library hold other libraries, whose licences are in licences, and which sbom.spdx.json lists.

Files: *
Copyright: 2026 the authors of evenkeel
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
TEXT
  { printf 'evenkeel (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$doc/changelog.gz"
}

# Static libraries, so that one package serves all releases.
licences() { # NAME [OVERRIDE of lintian...]
  cp -r "$tree/licences" "$tree/sbom.spdx.json" "$root/usr/share/doc/$1"
  install -d "$root/usr/share/lintian/overrides"
  printf "$1: %s\n" 'embedded-library *' "${@:2}" >"$root/usr/share/lintian/overrides/$1"
}

# Writes dist/NAME_VERSION_ARCH.deb. The fields on standard input; the description's lines follow "Description:".
finish() { # NAME ARCH
  chmod -R u=rwX,go=rX "$root/usr" # whatever the mask was when its files were made
  { printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$1" "$version" "$2" "$maintainer"
    printf 'Installed-Size: %s\nPriority: optional\n' "$(du -k --apparent-size -s "$root" | cut -f1)"
    cat
  } >"$root/DEBIAN/control"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  local deb=$dist/$1_${version}_$2.deb
  # xz, which Debian 11 reads.
  dpkg-deb --root-owner-group -Zxz ${DEB_LEVEL:+-z$DEB_LEVEL} --build "$root" "$deb" >/dev/null
  (cd "$dist" && sha256sum "${deb##*/}" >"${deb##*/}.sha256")
  echo "  $deb: $(stat -c %s "$deb") bytes"
}

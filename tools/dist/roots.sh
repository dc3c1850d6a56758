# Debians to run packages in, for check_dist.sh and check_deb.sh, which read this file: root folders by debootstrap, which
# build/dist/roots keeps, and processes in them without a network. Sets dir, a folder that goes with the script.
roots=${roots:-build/dist/roots}
dir=$(mktemp -d)
made=()
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Component: main' |
  awk '$2 !~ /-/ {print $1; exit}')
leave() {
  local root
  for root in ${made[@]+"${made[@]}"}; do ! mountpoint -q "$root/proc" || umount "$root/proc"; done
  rm -rf --one-file-system "$dir"
}
trap leave EXIT

# Sets root to a copy of a suite's folder, with /proc. More packages: a folder NAME of its own. 1 with a line in $dir/log.
make_root() { # SUITE [NAME PACKAGES]
  local name=${2:-$1} packages=${3:-}
  mkdir -p "$roots"
  ( flock 9
    [ -e "$roots/$name/whole" ] && exit
    rm -rf --one-file-system "${roots:?}/$name"
    debootstrap --variant=minbase ${packages:+--include="$packages"} "$1" "$roots/$name" "$mirror" && : >"$roots/$name/whole"
  ) 9>"$roots/lock" >"$dir/log" 2>&1 || return 1
  root=$dir/$name
  cp -a "$roots/$name" "$root" && rm "$root/whole" && mkdir "$root/try"
  made+=("$root")
  mount -t proc proc "$root/proc"
}
end_root() {
  umount "$root/proc" && rm -rf --one-file-system "${root:?}"
}

# A network of its own, which has the loopback alone: by ioctl, for not every machine has iproute2.
up='python3 -c "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh22x\", b\"lo\", 0x41))"'
in_root() { # command line [USER]
  unshare -n -- bash -c "$up; exec chroot ${2:+--userspec=$2} '$root' bash -c '$1'"
}

# served PROGRAM PORT, within a root: a server's answer, and its end. The client is bash, for the roots have no other.
write_served() { # file
  cat >"$1" <<'TEXT'
ask() {
  body='{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":8}'
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  printf 'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s' ${#body} "$body" >&3
  cat <&3
}
[ $# -eq 2 ] || return 0
port=$2 log=$(mktemp)
"$1" serve --port "$port" >"$log" 2>&1 & server=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
ask "$port"
kill $server; wait $server
echo "ended $?"
tail -n 2 "$log"
TEXT
}

# Sourced by scripts that start servers on loopback: ports that stay theirs while a server is dead. The
# script has `die`.

# Takes ports that nobody listens on and no other test holds: how many. They are in `taken_ports` then.
#
# From below the range that outgoing connections, and `crates/ports`, get theirs from. Each is held through a
# locked file, by this shell and by what it starts, and is free again when they end.
take_ports() {
  local locks="${TMPDIR:-/tmp}/meerkat-script-ports" port lock
  taken_ports=()
  mkdir -p "$locks"
  for port in $(shuf -i 12000-31999 -n 2000); do
    [[ ${#taken_ports[@]} -lt $1 ]] || return 0
    exec {lock}>>"$locks/$port"
    if flock --nonblock "$lock" && nobody_listens "$port"; then
      taken_ports+=("$port")
    else
      exec {lock}>&-
    fi
  done
  die "there are no $1 free ports on 127.0.0.1"
}

nobody_listens() {
  python3 -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null
}

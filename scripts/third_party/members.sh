# Sourced by scripts that set other people's clients on Meerkat: members on loopback, in processes of
# the script's own. The script has `die`, and a directory `$work` for what they write.

# The binary under test, wherever its user goes.
meerkat=$(realpath -m "${MEERKAT_BIN:-${CARGO_TARGET_DIR:-target}/release/meerkat}")
# What starts a member, and what asks one.
server=("$meerkat" serve)
etcdctl="$meerkat"

member_ids=()
client_ports=()
peer_ports=()

source scripts/third_party/ports.sh

# Whether nobody listens on a port of this machine, by either of its addresses.
port_is_free() {
  python3 -c '
import socket, sys
port = int(sys.argv[1])
socket.create_server(("127.0.0.1", port)).close()
try: socket.create_connection(("localhost", port), 2)
except OSError: sys.exit(0)
sys.exit(1)' "$1" 2>/dev/null
}

# Waits until a command succeeds: seconds, what is waited for, the command.
wait_for() {
  local deadline=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || die "waited too long until $what"
    sleep 0.5
  done
}

endpoints() { printf '127.0.0.1:%s,' "${client_ports[@]}" | sed 's/,$//'; }
all_healthy() { "$etcdctl" --endpoints "$(endpoints)" --command-timeout 3s endpoint health; }

# Starts a cluster and waits until it is healthy: how many members, the stem of their names, the client
# port of the first (0 for any), further flags. They are numbered from 0.
start_members() {
  local count="$1" stem="$2" first="$3" cluster="" number
  local -a ports
  shift 3
  [[ -x "${server[0]}" ]] || die "${server[0]} is not built"
  take_ports $((2 * count))
  ports=("${taken_ports[@]}")
  if [[ "$first" != 0 ]]; then
    port_is_free "$first" || die "port $first is taken on this machine, and the clients' tests insist on it"
    ports[0]="$first"
  fi
  client_ports=("${ports[@]:0:count}")
  peer_ports=("${ports[@]:count}")
  member_ids=()
  for ((number = 0; number < count; number++)); do cluster+=",$stem$number=http://127.0.0.1:${peer_ports[number]}"; done
  for ((number = 0; number < count; number++)); do
    "${server[@]}" --name "$stem$number" --data-dir "$work/$stem$number" \
      --listen-client-urls "http://127.0.0.1:${client_ports[number]}" \
      --advertise-client-urls "http://127.0.0.1:${client_ports[number]}" \
      --listen-peer-urls "http://127.0.0.1:${peer_ports[number]}" \
      --initial-advertise-peer-urls "http://127.0.0.1:${peer_ports[number]}" \
      --initial-cluster "${cluster#,}" "$@" >"$work/$stem$number.log" 2>&1 &
    member_ids+=($!)
  done
  wait_for 120 "$count members are healthy" all_healthy
}

# Ends the members of the last cluster, each by its id.
end_members() {
  local id
  for id in "${member_ids[@]}"; do kill -KILL "$id" 2>/dev/null || true; done
  for id in "${member_ids[@]}"; do wait "$id" 2>/dev/null || true; done
  member_ids=()
}

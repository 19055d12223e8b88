#!/usr/bin/env bash
# A private sshd on loopback with throw-away keys.
#   sshd.sh start FOLDER   prints the port; FOLDER gets client_key, known_hosts, sshd.pid, sshd.log
#   sshd.sh stop FOLDER
# Logs in the calling account by key only, so it works for root and for a plain user.
set -euo pipefail

start() {
    local folder=$1 sshd port
    sshd=$(command -v sshd || echo /usr/sbin/sshd)
    [ -x "$sshd" ] || { echo "sshd is missing: install openssh-server" >&2; exit 1; }
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    chmod 700 "$folder"
    [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    for key in host_key client_key; do
        [ -f "$folder/$key" ] || ssh-keygen -q -t ed25519 -N '' -C "$key" -f "$folder/$key" </dev/null
    done
    cp "$folder/client_key.pub" "$folder/authorized_keys"

    # Between choosing a free port and binding it another program may take it: try a few.
    for _ in 1 2 3 4 5; do
        port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
        write_configuration "$folder" "$port"
        rm -f "$folder/sshd.pid"
        "$sshd" -f "$folder/sshd_config" -E "$folder/sshd.log" </dev/null >/dev/null 2>&1 || continue
        for _ in $(seq 50); do [ -s "$folder/sshd.pid" ] && break 2; sleep 0.1; done
    done
    [ -s "$folder/sshd.pid" ] || { echo "sshd did not start: $(tail -n 3 "$folder/sshd.log")" >&2; exit 1; }
    printf '[127.0.0.1]:%s %s\n' "$port" "$(cut -d' ' -f1,2 "$folder/host_key.pub")" >"$folder/known_hosts"
    echo "$port"
}

write_configuration() {
    cat >"$1/sshd_config" <<CONFIGURATION
ListenAddress 127.0.0.1
Port $2
HostKey $1/host_key
PidFile $1/sshd.pid
AuthorizedKeysFile $1/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
MaxSessions 64
MaxStartups 64
Subsystem sftp internal-sftp
CONFIGURATION
}

stop() {
    local file="$1/sshd.pid"
    [ -s "$file" ] || return 0
    kill "$(cat "$file")" 2>/dev/null || true
    rm -f "$file"
}

case "${1:-} ${2:+folder}" in
    "start folder") start "$2" ;;
    "stop folder") stop "$2" ;;
    *) echo "usage: sshd.sh start|stop FOLDER" >&2; exit 2 ;;
esac

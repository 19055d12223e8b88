# What all scripts about jobs share. POSIX sh. Names begin with _r, so that no variable of the host is changed by us.
_rroot=${HOME:-/nonexistent}/.remote-sandbox-mcp
_rboot=
[ ! -r /proc/sys/kernel/random/boot_id ] || read -r _rboot </proc/sys/kernel/random/boot_id
[ -n "$_rboot" ] || _rboot=$({ sysctl -n kern.bootsessionuuid || sysctl -n kern.boottime; } 2>/dev/null | tr -cd 'A-Za-z0-9-')
[ -n "$_rboot" ] || _rboot=unknown

say() { printf 'RSMCP:%s:%s\n' "$_rm" "$*"; }

nap() { sleep "$1" 2>/dev/null || sleep 1; }

# Sets _rstart to the start time of a process; fails when there is none, or only the remains of one.
start_of() {
  _rstart=
  case $1 in '' | 0 | *[!0-9]*) return 1 ;; esac
  if [ -r /proc/self/stat ]; then
    { read -r _rx <"/proc/$1/stat"; } 2>/dev/null || return 1
    _rx=${_rx##*) }
    set -- $_rx
    case $1 in Z | X) return 1 ;; esac
    _rstart=${20-}
  else
    _rx=$(ps -o stat= -p "$1" 2>/dev/null)
    case $_rx in '' | Z*) return 1 ;; esac
    # Written in local time otherwise, and the runner has the variables of its caller.
    _rstart=$(LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1" 2>/dev/null | tr -cs 'A-Za-z0-9' '-')
  fi
  [ -n "$_rstart" ]
}

# Whether the process that a file names is still the same one. Sets _rpid and _rlead.
lives() {
  _rpid= _rlead=0
  [ -f "$1" ] && [ ! -h "$1" ] || return 1
  read -r _rpid _rwas _rthen _rlead _rx <"$1" || return 1
  [ "$_rthen" = "$_rboot" ] && start_of "$_rpid" && [ "$_rstart" = "$_rwas" ]
}

# Whether the attempt in a folder runs. A command may outlive the runner that waits for it.
attempt_lives() {
  [ ! -e "$1/exit" ] || return 1
  lives "$1/process" || lives "$1/child"
}

# Gives a finished file its name, unless somebody else already has that name: of several, one succeeds, and no
# reader ever sees half of it.
take() {
  ln "$1" "$2" 2>/dev/null && return 0
  [ ! -e "$2" ] && mkdir "$2.taken" 2>/dev/null && mv "$1" "$2" 2>/dev/null
}

# Makes sure that an attempt that has not passed its gate never will. Fails when it has passed.
void_attempt() {
  printf 'void\n' >"$1/void.$$" 2>/dev/null || return 1
  take "$1/void.$$" "$1/process"
  _rx=$?
  rm -f "$1/void.$$"
  return $_rx
}

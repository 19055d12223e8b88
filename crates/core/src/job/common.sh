# What all scripts about jobs share. POSIX sh. Names begin with _r, so that no variable of the host is changed by us.
_rroot=${HOME:-/nonexistent}/.remote-sandbox-mcp
_rboot=
[ ! -r /proc/sys/kernel/random/boot_id ] || read -r _rboot </proc/sys/kernel/random/boot_id
[ -n "$_rboot" ] || _rboot=$({ sysctl -n kern.bootsessionuuid || sysctl -n kern.boottime; } 2>/dev/null | tr -cd 'A-Za-z0-9-')
[ -n "$_rboot" ] || _rboot=unknown
# Several hosts may share a home; which of them this is tells another host from a host that was booted again.
_rnode=
[ ! -r /proc/sys/kernel/hostname ] || read -r _rnode </proc/sys/kernel/hostname
[ -n "$_rnode" ] || _rnode=$(uname -n 2>/dev/null)
case $_rnode in *[!A-Za-z0-9._-]*) _rnode=$(printf %s "$_rnode" | tr -c 'A-Za-z0-9._-' -) ;; esac
[ ${#_rnode} -le 64 ] || _rnode=$(printf %s "$_rnode" | cut -c1-64)

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

# Whether the process that a file names is still the same one. Sets _rpid, _rlead and where it runs, _rat.
lives() {
  _rpid= _rlead=0 _rat=
  [ -f "$1" ] && [ ! -h "$1" ] || return 1
  read -r _rpid _rwas _rthen _rlead _rat _rx <"$1" || return 1
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
  [ ! -e "$2" ] || return 1
  # A name may have become free meanwhile. Only where there are no such links at all it is given in another way, for
  # the two ways do not see each other.
  if ln "$1" "$1.link" 2>/dev/null; then
    rm -f "$1.link"
    return 1
  fi
  mkdir "$2.taken" 2>/dev/null && mv "$1" "$2" 2>/dev/null
}

# Makes sure that an attempt that has not passed its gate never will. 1 when it has passed, or somebody else did this; 2
# when the host does not let us, and nothing is certain.
void_attempt() {
  if [ -f "$1/void" ] && [ ! -h "$1/void" ]; then
    # Written by the start while there was room: a link to it needs none.
    take "$1/void" "$1/process" && return 0
  elif printf 'void\n' 2>/dev/null >"$1/void.$$"; then
    take "$1/void.$$" "$1/process" && { rm -f "$1/void.$$"; return 0; }
  fi
  rm -f "$1/void.$$"
  [ ! -e "$1/process" ] || return 1
  return 2
}

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
_rsurvey=

say() { printf 'RSMCP:%s:%s\n' "$_rm" "$*"; }

# Some programs know whole seconds alone; whoever counts naps has had fifty then.
nap() { sleep "$1" 2>/dev/null || { sleep 1; _rtry=$((${_rtry:-0} + 49)); }; }

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

# When the first process of all that are seen here began: containers on one boot do not see each other's processes, and
# each has a first one of its own.
_rborn=
[ ! -r /proc/1/stat ] || ! start_of 1 || _rborn=$_rstart

# Whether the process that a file names is still the same one. Sets _rpid, _rlead and where it runs, _rat and _rorigin.
lives() {
  _rpid= _rlead=0 _rat= _rorigin=
  [ -f "$1" ] && [ ! -h "$1" ] || return 1
  read -r _rpid _rwas _rthen _rlead _rat _rorigin _rx <"$1" || return 1
  [ "$_rthen" = "$_rboot" ] && start_of "$_rpid" && [ "$_rstart" = "$_rwas" ]
}

# Whether a process that was just read and is not found may live where nobody sees it from here, in another container on
# the same boot. A host that was only given another name has the same first process, and a container that was only
# started again has the same name.
elsewhere() {
  [ -n "$_rat" ] && [ "$_rthen" = "$_rboot" ] && [ "$_rat" != "$_rnode" ] || return 1
  [ -n "$_rorigin" ] && [ -n "$_rborn" ] && [ "$_rorigin" != "$_rborn" ]
}

# Whether the attempt in a folder runs, or may run where it is not seen. A command may outlive the runner that waits for
# it, and what it started may outlive both.
attempt_lives() {
  [ ! -e "$1/exit" ] || return 1
  lives "$1/process" || elsewhere || lives "$1/child" || has_left "$1"
}

# Words of jobs and of runners in the environment of processes, each as /proc/<pid>/environ:<name>=<job>.<attempt>.
carried() {
  _rx='REMOTE_SANDBOX_(JOB|RUNNER)=job_[0-9a-z]+\.[0-9]+'
  if printf 'a\0b\0' | grep -qz '^b$' 2>/dev/null; then
    grep -EHsaz "^$_rx\$" /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
  else
    for _rentry in /proc/[0-9]*/environ; do
      tr '\0' '\n' <"$_rentry" | grep -E "^$_rx\$" | while read -r _rline; do printf '%s\n' "$_rentry:$_rline"; done
    done 2>/dev/null
  fi | grep -Ex "/proc/[0-9]+/environ:$_rx"
}

# Sets _rsurvey, once, to the words that living processes carry and, each behind a colon, the sessions they are in, or
# the groups where the host tells no more. Runners, and what keeps logs for them, do not count.
survey() {
  [ -z "$_rsurvey" ] || return 0
  _rsurvey=' '
  if [ ! -r /proc/self/stat ]; then
    _rsurvey=$(ps -A -o pgid= -o stat= 2>/dev/null | while read -r _rx _rline; do
      case $_rline in Z*) ;; *) printf ' :%s ' "$_rx" ;; esac
    done)
    _rsurvey=" $_rsurvey"
    return 0
  fi
  _rrunners=' '
  for _rx in $(carried); do
    case $_rx in
    *:REMOTE_SANDBOX_JOB=*) _rsurvey="$_rsurvey${_rx##*=} " ;;
    *) _rx=${_rx#/proc/} _rrunners="$_rrunners${_rx%%/*} " ;;
    esac
  done
  for _rx in /proc/[0-9]*; do
    case $_rrunners in *" ${_rx#/proc/} "*) continue ;; esac
    { read -r _rline <"$_rx/stat"; } 2>/dev/null || continue
    set -- ${_rline##*) }
    case $1 in Z | X) ;; *) case $_rsurvey in *" :$4 "*) ;; *) _rsurvey="$_rsurvey:$4 " ;; esac ;; esac
  done
}

# Whether processes of an attempt are left besides its runner and its command: some that carry its word, or some in
# the session that it led.
has_left() {
  _rpid= _rwas= _rthen= _rlead=0
  [ -f "$1/process" ] && [ ! -h "$1/process" ] || return 1
  { read -r _rpid _rwas _rthen _rlead _rx <"$1/process"; } 2>/dev/null || return 1
  [ "$_rthen" = "$_rboot" ] || return 1
  survey
  _rx=${1%/*}
  case $_rsurvey in *" ${_rx##*/}.${1##*/} "*) return 0 ;; esac
  case $_rlead in '' | 0 | *[!0-9]*) return 1 ;; esac
  # The number may be another's by now.
  ! start_of "$_rlead" || [ "$_rstart" = "$_rwas" ] || return 1
  case $_rsurvey in *" :$_rlead "*) return 0 ;; esac
  return 1
}

# Gives a finished file its name, unless somebody else already has that name: of several, one succeeds, and no
# reader ever sees half of it.
take() {
  ln "$1" "$2" 2>/dev/null && return 0
  [ ! -e "$2" ] || return 1
  # A name may have become free meanwhile. Only where there are no such links at all it is given in another way, for
  # the two ways do not see each other.
  if ln "$1" "$2.link.$$" 2>/dev/null; then
    rm -f "$2.link.$$"
    return 1
  fi
  mkdir "$2.taken" 2>/dev/null || return 1
  cat "$1" 2>/dev/null >"$2.taken/whole" && mv "$2.taken/whole" "$2" 2>/dev/null && return 0
  rm -rf "$2.taken"
  return 1
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

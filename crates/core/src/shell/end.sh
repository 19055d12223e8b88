# Finds the processes of one run and, when asked to, ends them. POSIX sh; no word of it is the caller's.
# Given above: t token, q session, b start time of its leader, mode (end or look).
proc=; [ -r /proc/$$/stat ] && proc=1
# All living processes as " pid:parent:group:session" words.
snapshot() {
  T=
  if [ -n "$proc" ]; then
    for d in /proc/[0-9]*; do
      { read -r x <"$d/stat"; } 2>/dev/null || continue
      x=${x##*) }; set -- $x
      [ "$1" = Z ] || [ "$1" = X ] || T="$T ${d#/proc/}:$2:$3:$4"
    done
  else
    T=$(ps -A -o pid= -o ppid= -o pgid= -o stat= 2>/dev/null | while read -r p pp g z; do
      case $z in Z*) ;; *) printf ' %s:%s:%s:0' "$p" "$pp" "$g";; esac
    done)
  fi
}
# The session number may have been given to somebody else after our leader ended; its start time tells.
ours=1
leader() {
  ours=1
  [ "$q" -gt 1 ] || { ours=; return; }
  [ -n "$proc" ] || return
  x=; { read -r x <"/proc/$q/stat"; } 2>/dev/null || return
  x=${x##*) }; set -- $x
  [ "${20-0}" = "$b" ] || ours=
}
carriers() {
  [ -n "$proc" ] || return
  if [ -n "$gnu" ]; then
    grep -lszx -- "REMOTE_SANDBOX_RUN=$t" /proc/[0-9]*/environ 2>/dev/null
  else
    for d in /proc/[0-9]*; do
      tr '\0' '\n' 2>/dev/null <"$d/environ" | grep -qx "REMOTE_SANDBOX_RUN=$t" 2>/dev/null && printf '%s\n' "$d/environ"
    done 2>/dev/null
  fi
}
# Sets F to " pid pid ": members of the session or group, carriers in C, and all their descendants.
look() {
  leader; snapshot; F=' '
  for e in $T; do
    p=${e%%:*}; r=${e#*:}; r=${r#*:}; g=${r%%:*}; s=${r#*:}
    case $p in 1|$$) continue;; esac
    if [ -n "$ours" ] && { [ "$s" = "$q" ] || [ "$g" = "$q" ]; }; then F="$F$p "; continue; fi
    case $C in *" $p "*) F="$F$p ";; esac
  done
  more=1
  while [ -n "$more" ]; do
    more=
    for e in $T; do
      p=${e%%:*}; r=${e#*:}; pp=${r%%:*}
      case $p in 1|$$) continue;; esac
      case $F in *" $p "*) continue;; esac
      case $F in *" $pp "*) F="$F$p "; more=1;; esac
    done
  done
}
find_all() {
  C=" $(carriers | while IFS=/ read -r _ _ p _; do printf '%s ' "$p"; done)"
  look
}
# Whether one of F still lives; asks for these only, because a whole look takes long on a busy host.
some_left() {
  for p in $F; do
    if [ -n "$proc" ]; then
      { read -r x <"/proc/$p/stat"; } 2>/dev/null || continue
      case ${x##*) } in Z*|X*) continue;; esac
      return 0
    fi
    kill -0 "$p" 2>/dev/null && return 0
  done
  return 1
}
# Hundredths of a second since some moment; always 0 on a host that does not tell.
clock() { now=0; { read -r now x </proc/uptime; } 2>/dev/null; now=${now%.*}${now#*.}; }
ask_to_end() { [ "$1" = ' ' ] || { kill -TERM $1; kill -CONT $1; } 2>/dev/null; }
clock; begun=$now first=' ' C=' '
if [ $mode = end ]; then
  # Nothing up to here starts a process: a run that has used up all of them can be ended too. Where
  # the next step fails for want of one, the trap makes room.
  look; first=$F; trap 'kill -KILL $F 2>/dev/null' EXIT
  ask_to_end "$first"
fi
gnu=; printf 'a\0b\0' 2>/dev/null | grep -qz '^b$' 2>/dev/null && gnu=1
# About two seconds in growing steps, fewer of them where looking takes long itself.
steps='0.1 0.2 0.3 0.4 0.5 0.3'; sleep 0.01 2>/dev/null || steps='1 1'
nap() { sleep "$1" 2>/dev/null || sleep 1; }
find_all
rest=' '
for p in $F; do
  case $first in *" $p "*) ;; *) rest="$rest$p ";; esac
done
found="$first$rest"
if [ $mode = end ] && [ "$F" != ' ' ]; then
  ask_to_end "$rest"
  for step in $steps; do
    nap $step
    some_left || { find_all; [ "$F" = ' ' ] && break; }
    clock; [ $((now - begun)) -ge 180 ] && break
  done
  [ "$F" = ' ' ] || find_all
  # Again while it helps: what KILL does not move is somebody else's.
  n=0
  while [ "$F" != ' ' ] && [ $n -lt 6 ]; do
    before=$F; kill -KILL $F 2>/dev/null
    nap 0.05; find_all
    if [ "$F" = "$before" ]; then n=$((n+3)); else n=$((n+1)); fi
  done
fi
trap - EXIT
for p in $F; do
  c=; { read -r c <"/proc/$p/comm"; } 2>/dev/null || c=$(ps -o comm= -p "$p" 2>/dev/null)
  printf 'RSMCP:%s:P:%s:%s\n' "$t" "$p" "$c"
done
# Where neither the token nor a number can find anything, nothing can be said.
[ -n "$proc" ] || [ "$q" -gt 1 ] || exit 0
set -- $found
printf 'RSMCP:%s:E:%s\n' "$t" $#

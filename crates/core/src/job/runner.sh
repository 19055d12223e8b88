# Runs the command of one attempt and writes down how it ended. Arguments: folder, working folder, log, shell, umask,
# our own search path, most bytes of log, session name, word in the environment, seconds between two looks at the log.
trap '' HUP
# Caught and not ignored: the command has its own way with them, and we stay to see it end.
trap : INT QUIT USR1 USR2 ALRM PIPE
_rasked=
trap '_rasked=yes' TERM
_rpath=$PATH PATH=$6
_rdir=$1 _rcwd=$2 _rlog=$3 _rshell=$4 _rmask=$5 _rmax=$7 _rname=$8 _rword=$9
shift 9
_rpause=$1
cd /
umask 077

_rlead=0
if [ -r /proc/$$/stat ]; then
  read -r _rx </proc/$$/stat
  _rx=${_rx##*) }
  set -- $_rx
  [ "$4" != $$ ] || _rlead=$$
elif [ "$(ps -o pgid= -p $$ 2>/dev/null | tr -d ' ')" = $$ ]; then
  _rlead=$$
fi
start_of $$ || _rstart=0
# Without this record nobody could see or end it, so it does not begin.
printf '%s %s %s %s %s %s\n' $$ "$_rstart" "$_rboot" $_rlead "$_rnode" "$_rborn" >"$_rdir/process.$$" || { rm -f "$_rdir/process.$$"; exit 1; }
# All this while the start is still arranged: now it is said whether there is one, and on which devices.
_rgo= _rvisible= _rdevices=
read -r _rgo _rvisible _rdevices && [ "$_rgo" = go ] || { rm -f "$_rdir/process.$$"; exit 1; }
exec </dev/null
take "$_rdir/process.$$" "$_rdir/process"
_rx=$?
# Whoever waits for this answers its caller; nobody reads the rest.
[ $_rx != 0 ] || printf 'began\n'
exec >/dev/null
rm -f "$_rdir/process.$$"
# Somebody made sure that this attempt never begins.
[ $_rx = 0 ] || exit 1
if [ -n "$_rvisible" ]; then
  export "$_rvisible=$_rdevices"
  [ "$_rvisible" != CUDA_VISIBLE_DEVICES ] || export CUDA_DEVICE_ORDER=PCI_BUS_ID
  [ "$_rvisible" != ROCR_VISIBLE_DEVICES ] || unset HIP_VISIBLE_DEVICES
fi

_rrun() (
  _rown=
  [ ! -r /proc/self/stat ] || read -r _rown _rx </proc/self/stat
  [ -n "$_rown" ] || _rown=$(exec sh -c 'echo $PPID')
  ! start_of "$_rown" ||
    { printf '%s %s %s 0 %s %s\n' "$_rown" "$_rstart" "$_rboot" "$_rnode" "$_rborn" >"$_rdir/child.new" && mv "$_rdir/child.new" "$_rdir/child"; } 2>/dev/null
  umask "$_rmask"
  # Here and not on the call: what the shell says about the end of this must not be taken for the command's words.
  exec >>"$_rlog" 2>&1 </dev/null || exit 125
  CDPATH= cd "$_rcwd" || exit 125
  PATH=$_rpath
  unset REMOTE_SANDBOX_RUN REMOTE_SANDBOX_RUNNER
  export REMOTE_SANDBOX_JOB="$_rword"
  case $_rshell in
  */bash | bash) exec "$_rshell" --norc "$_rdir/command" ;;
  *) exec "$_rshell" "$_rdir/command" ;;
  esac
)

# Writes down up to where the middle of the log is given back.
tell_hole() {
  if [ "$1" = $_rfirst ]; then
    rm -f "$_rdir/hole"
  else
    printf '%s %s\n' $_rfirst "$1" >"$_rdir/hole.new" && mv "$_rdir/hole.new" "$_rdir/hole"
  fi 2>/dev/null
}

# Sets _rbase to where the first attempt of the job began to write. What stands before that is not the job's.
find_base() {
  _rbase=
  for _rx in "${_rdir%/*}"/*/record; do
    [ -f "$_rx" ] || continue
    while IFS= read -r _rline; do
      case $_rline in
      offset=*[!0-9]* | offset=) ;;
      offset=*) [ -n "$_rbase" ] && [ "$_rbase" -le "${_rline#offset=}" ] || _rbase=${_rline#offset=} ;;
      esac
    done <"$_rx"
  done
  _rbase=${_rbase:-0}
}

# Keeps the log within its bound. The first quarter stays and so does the last half; what lies between is given back
# to the disk, and every byte keeps its place.
_rkeep() {
  find_base
  _rnap= _rfirst=$(((_rbase + _rmax / 4) / 4096 * 4096))
  [ $_rfirst -ge $_rbase ] || _rfirst=$((_rfirst + 4096))
  _rpunched=$_rfirst
  trap 'kill "$_rnap" 2>/dev/null; exit 0' TERM
  while :; do
    sleep "$_rpause" &
    _rnap=$!
    wait $_rnap
    lives "$_rdir/process" && [ ! -e "$_rdir/exit" ] || exit 0
    set -- $(ls -lnLd "$_rlog" 2>/dev/null)
    _rsize=${5:-0}
    [ $((_rsize - _rpunched + _rmax / 4)) -gt "$_rmax" ] || continue
    _rto=$(((_rsize - _rmax / 2) / 4096 * 4096))
    # Told before it is there: nobody takes zeros for what the command said.
    tell_hole $_rto
    fallocate -p -o $_rpunched -l $((_rto - _rpunched)) "$_rlog" 2>/dev/null || {
      tell_hole $_rpunched
      : >"$_rdir/alarm"
      exit 0
    }
    _rpunched=$_rto
  done
}

_rwatch=
if [ "$_rmax" -gt 0 ]; then
  _rkeep </dev/null >/dev/null 2>&1 &
  _rwatch=$!
fi
{ _rrun; _rcode=$?; } 2>"$_rdir/ending"
[ -z "$_rwatch" ] || kill "$_rwatch" 2>/dev/null

# A shell reports a signal as a number above 128, which a command may also choose. bash says aloud which it was, but
# for two signals; other shells do not, and there the number is taken for what it usually means.
_rsignal=0
if [ $_rcode -gt 128 ] && [ $_rcode -le 192 ]; then
  case ${BASH_VERSION:+bash}:$_rcode in
  bash:130 | bash:141 | :*) _rsignal=$((_rcode - 128)) ;;
  *) [ ! -s "$_rdir/ending" ] || _rsignal=$((_rcode - 128)) ;;
  esac
fi
# A host that is shut down, or ends what a login has left, asks all of it to end: that is an interruption and no end, and
# is not written down as one. It asks one after the other, and our turn may come last. Who stops a job leaves a mark.
case $_rsignal:$_rcode in
15:* | 0:143) [ -n "$_rasked" ] || [ -e "$_rdir/stop" ] || nap 0.3 ;;
esac
case $_rasked:$_rsignal:$_rcode in yes:[1-9]*:* | yes:0:143) [ -e "$_rdir/stop" ] || exit 0 ;; esac
# Whatever may have come in its place: opening that may never end.
[ -d "$_rlog" ] || { [ -e "$_rlog" ] && [ ! -f "$_rlog" ]; } || {
  [ -z "$(tail -c 1 "$_rlog" | tr '\0' x)" ] || printf '\n'
  printf 'EXIT_CODE=%s\n' $_rcode
} >>"$_rlog" 2>/dev/null
_rnonce=
read -r _rnonce <"$_rdir/nonce"
# Where its log ends: the next job with this session writes on behind it.
set -- $(ls -lnLd "$_rlog" 2>/dev/null)
# Into the room that was kept for it.
printf 'nonce=%s\ncode=%s\nsignal=%s\nended=%s\nlog=%s\nend=\n' "$_rnonce" $_rcode $_rsignal "$(date +%s)" "${5-}" 1<>"$_rdir/exit.new"
mv "$_rdir/exit.new" "$_rdir/exit"
# Whoever looks later asks for them only where there were some.
! has_left "$_rdir" || { : >"$_rdir/left"; } 2>/dev/null
# Its end is written down: from now on it may be ended.
trap - TERM
end_view "$_rname" "$_rword"
exit 0

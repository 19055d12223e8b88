# Looks at many jobs of this host. Given above: _rm mark, _rforeign (yes when one of them is seen by its session alone);
# below stands one line for each job.
exec </dev/null
_rspent=0

field() { say "$_ri:$*"; }

# Whatever it prints stands between its line and the next one of ours.
blob() {
  field "$1"
  shift
  "$@" 2>/dev/null
  printf '\n'
}

# Says which process a file names, and since when the process of that number lives now.
process_field() {
  if [ -h "$_rdir/$1" ] || { [ -e "$_rdir/$1" ] && [ ! -f "$_rdir/$1" ]; }; then
    field "$1:odd"
  elif [ -e "$_rdir/$1" ]; then
    _rpid= _rwas= _rthen= _rlead= _rat= _rorigin=
    read -r _rpid _rwas _rthen _rlead _rat _rorigin _rx <"$_rdir/$1"
    start_of "$_rpid" || _rstart=
    [ "$_rstart" = "$_rwas" ] || ! elsewhere || _rstart=elsewhere
    field "$1:$_rpid:$_rwas:$_rthen:$_rlead:$_rstart:$_rat"
  fi
}

# A line of a small file of ours, whatever somebody made of it.
word_field() {
  [ -f "$_rdir/$1" ] && [ ! -h "$_rdir/$1" ] || return 0
  _rx=
  { read -r _rx <"$_rdir/$1"; } 2>/dev/null
  field "$1:$_rx"
}

# Size and age of a file, or why it is not looked at. Nothing is opened that may never answer.
figures() {
  _rkind=missing _rsize= _rmtime=
  if [ -f "$1" ]; then
    _rkind=file
    [ -r "$1" ] || _rkind=unreadable
    set -- $(stat -L -c '%s %Y' "$1" 2>/dev/null || stat -L -f '%z %m' "$1" 2>/dev/null || { set -- $(ls -lnLd "$1"); echo "$5"; })
    _rsize=${1-} _rmtime=${2-}
  elif [ -e "$1" ]; then
    _rkind=odd
  fi
}

last_bytes() { tail -c "$_rmost" "$_rlog"; }
bytes_since() {
  # Most logs have nothing new when they are looked at.
  [ -z "$_rsize" ] || [ "$_rsize" -gt "$_rfrom" ] || return 0
  tail -c "+$((_rfrom + 1))" "$_rlog" | head -c "$_rmost"
}
first_bytes() { head -c "$2" "$1"; }

# Sets _rhole and _rafter to the part of the log that was given back to the disk, as the runners of all attempts have
# written it down, for their log is one; nothing but zeros is read there. Fails when there is none.
find_hole() {
  _rhole= _rafter=0
  [ -n "$_rdir" ] || return 1
  for _rx in "${_rdir%/*}"/*/hole; do
    [ -f "$_rx" ] && [ ! -h "$_rx" ] || continue
    _rbegin= _rend=
    { read -r _rbegin _rend _rline <"$_rx"; } 2>/dev/null
    case $_rbegin:$_rend in *[!0-9:]* | :* | *: | ???????????????????*:* | *:???????????????????*) continue ;; esac
    [ "$_rend" -le "$_rafter" ] || _rhole=$_rbegin _rafter=$_rend
  done
  # A log that ends before it was begun anew.
  [ -n "$_rhole" ] && [ "${_rsize:-0}" -ge "$_rafter" ]
}

# Has what is read end before the hole or begin behind it; of the end of a log, always the latter.
pass_hole() {
  [ "$_rfrom" -lt "$_rafter" ] && [ $((_rfrom + _rmost)) -gt "$_rhole" ] || return 0
  if [ "$1" = last ]; then
    _rfrom=$_rafter _rmost=$((_rsize - _rafter))
  elif [ "$_rfrom" -ge "$_rhole" ]; then
    _rfrom=$_rafter
  else
    _rmost=$((_rhole - _rfrom))
    return 0
  fi
  field "begin:$_rfrom"
}

# Sets _rend to where the log of an attempt ends that is over. A later job with the same session writes behind it, and says
# where that begins; so does what the attempt has left running, which is still its own.
find_end() {
  _rend=
  [ -n "$_rdir" ] || return 0
  if [ -f "$_rdir/log_end" ] && [ ! -h "$_rdir/log_end" ]; then
    { read -r _rend _rx <"$_rdir/log_end"; } 2>/dev/null
  elif [ ! -e "$_rdir/left" ] && [ -f "$_rdir/exit" ] && [ ! -h "$_rdir/exit" ]; then
    _rx=$(head -c 600 "$_rdir/exit" 2>/dev/null | tr '\n\0' '  ')
    case $_rx in *' log='*' end='*) _rend=${_rx#*' log='} _rend=${_rend%%' '*} ;; esac
  fi
  case $_rend in *[!0-9]* | ???????????????????*) _rend= ;; esac
}

# A part of the log. The hole is told as it is afterwards, for it may have grown while that was read.
log_part() {
  _rpart=$_rfrom
  # The end as it was when the size was taken: only so does the reader know which bytes it has.
  if [ "$_rfrom" = last ] && [ -n "$_rsize" ]; then
    _rfrom=$((_rsize - _rmost))
    [ $_rfrom -ge 0 ] || _rfrom=0
  fi
  if [ "$_rfrom" = last ]; then
    blob log_text last_bytes
    return
  fi
  [ -z "$_rend" ] || [ $((_rfrom + _rmost)) -le "$_rsize" ] || _rmost=$((_rsize - _rfrom))
  ! find_hole || pass_hole "$_rpart"
  blob log_text bytes_since
  ! find_hole || field "hole:$_rhole:$_rafter"
}

# A path as the user wrote it.
expand() {
  case $1 in
  '~') _rpath=$HOME ;;
  '~/'*) _rpath=$HOME/${1#'~/'} ;;
  *) _rpath=$1 ;;
  esac
}

# What a command prints; its complaints too, but where they would spoil what is read.
told_by() {
  case $1 in
  json) $_rset sh -c "$2" 2>/dev/null </dev/null ;;
  *) $_rset sh -c "$2" 2>&1 </dev/null ;;
  esac
}

# Runs a command of the caller for a few seconds, all such commands of one look together for not much longer.
checkpoint_command() {
  if [ $_rspent -ge 300 ]; then
    field checkpoint:skipped
    return
  fi
  _rout=$(mktemp 2>/dev/null) || { field checkpoint:unreadable; return; }
  _rset=
  ! command -v setsid >/dev/null 2>&1 || _rset=setsid
  ( { told_by "$3" "$1"; printf '%s\n' $? >"$_rout.status"; } | head -c "$2" >"$_rout"; exit 0 ) 2>/dev/null &
  _rtool=$! _rnaps=0 _rkind=told
  while kill -0 $_rtool 2>/dev/null; do
    if [ $_rnaps -ge 100 ]; then
      _rkind=hung
      break
    fi
    _rnaps=$((_rnaps + 1))
    nap 0.05
  done
  _rspent=$((_rspent + _rnaps))
  [ $_rkind = told ] || end_tree $_rtool
  _rx=
  [ ! -s "$_rout.status" ] || read -r _rx <"$_rout.status"
  field "checkpoint:$_rkind:$_rx"
  blob checkpoint_text first_bytes "$_rout" "$2"
  rm -f "$_rout" "$_rout.status"
}

# Ends a process with all that it started.
end_tree() {
  _rall=$(ps -A -o pid= -o ppid= 2>/dev/null || ps -o pid,ppid 2>/dev/null)
  _rdoomed=" $1 " _rmore=yes
  while [ -n "$_rmore" ]; do
    _rmore=
    set -- $_rall
    while [ $# -gt 1 ]; do
      case $_rdoomed in
      *" $1 "*) ;;
      *" $2 "*) _rdoomed="$_rdoomed$1 " _rmore=yes ;;
      esac
      shift 2
    done
  done
  kill -KILL $_rdoomed 2>/dev/null
}

checkpoint_file() {
  expand "$1"
  case $_rpath in /*) ;; *) _rpath=${_rcwd:-$HOME}/$_rpath ;; esac
  figures "$_rpath"
  field "checkpoint:$_rkind:$_rsize:$_rmtime"
  [ $_rkind != file ] || blob checkpoint_text first_bytes "$_rpath" "$2"
}

# Finds the folder of the job that has a session, whoever started it.
claimed_folder() {
  # A job has the name that follows from its id without a claim; once it is over, another may choose that name.
  own_folder "$1"
  [ -z "$_rown" ] || _rdir=$_rown
  [ -z "$_rown" ] || ! attempt_lives "$_rown" || return 0
  _rplace=$_rroot/claims/$_rboot/session-$1
  top_claim "$_rplace"
  [ "$_rtop" -gt 0 ] || return 0
  _rjob= _rn=
  { read -r _rjob _rn _rx <"$_rplace/$_rtop"; } 2>/dev/null
  case $_rjob:$_rn in *[!0-9a-z_:]* | *: | :*) return 0 ;; esac
  [ ! -d "$_rroot/jobs/$_rjob/$_rn" ] || _rdir=$_rroot/jobs/$_rjob/$_rn
}

# The words in a part of the log that may be alarms, each once. What was given back to the disk reads as zeros.
gap_words() {
  tail -c "+$(($1 + 1))" "$_rlog" | head -c "$2" | tr '\000\015' '\n\n' | LC_ALL=C grep -aiEo -- "$_rwords" | LC_ALL=C sort -u | head -c 8192
}

# Arguments: number, job, attempt, log, first byte or "last", most bytes, folder of the task, what kind of checkpoint,
# its path or command, most bytes of it, the session of a task that is not known to be a job, and which bytes of the log
# are only searched for alarms: the first, and how many.
look() {
  _ri=$1 _rlog=$4 _rfrom=$5 _rmost=$6 _rcwd=$7
  CDPATH= cd "$HOME" 2>/dev/null
  expand "$_rcwd"
  _rcwd=$_rpath
  expand "$_rlog"
  _rlog=$_rpath
  _rdir=
  [ -z "$2" ] || _rdir=$_rroot/jobs/$2/$3
  [ -z "${11}" ] || claimed_folder "${11}"
  if [ -n "$_rdir" ]; then
    if [ -d "$_rdir" ]; then
      field folder:there
      word_field nonce
      word_field stop
      process_field process
      process_field child
      # After the end only where the runner found some.
      if [ ! -e "$_rdir/exit" ] || [ -e "$_rdir/left" ]; then
        lives "$_rdir/process" || lives "$_rdir/child" || ! has_left "$_rdir" || field left
      fi
      [ ! -e "$_rdir/alarm" ] || field alarm
      if [ -h "$_rdir/exit" ]; then
        field exit:symlink
      elif [ -f "$_rdir/exit" ]; then
        blob exit_text head -c 2000 "$_rdir/exit"
      elif [ -e "$_rdir/exit" ]; then
        field exit:odd
      fi
    else
      field folder:missing
    fi
  fi
  figures "$_rlog"
  find_end
  [ -z "$_rend" ] || { [ -n "$_rsize" ] && [ "$_rsize" -gt "$_rend" ]; } || _rend=
  [ -z "$_rend" ] || _rsize=$_rend
  field "log:$_rkind:$_rsize:$_rmtime"
  if [ $_rkind = file ] && [ "$_rmost" -gt 0 ]; then
    log_part
  fi
  _rgap=${13}
  [ -z "$_rend" ] || [ $((${12} + _rgap)) -le "$_rsize" ] || _rgap=$((_rsize - ${12}))
  if [ $_rkind = file ] && [ "$_rgap" -gt 0 ]; then blob gap_text gap_words "${12}" "$_rgap"; fi
  CDPATH= cd "${_rcwd:-$HOME}" 2>/dev/null
  case $8 in
  path) checkpoint_file "$9" "${10}" ;;
  command | json) checkpoint_command "$9" "${10}" "$8" ;;
  esac
  field over
}

_ri=host
field "boot:$_rboot"
field "node:$_rnode"
field "now:$(date +%s 2>/dev/null)"
if [ -n "$_rforeign" ] && command -v tmux >/dev/null 2>&1 && list_sessions; then
  field "tmux:yes"
  sessions() { printf '%s\n' "$_rsessions" | head -c 65536; }
  blob sessions sessions
else
  field "tmux:no"
fi

# Starts one attempt of a job. Given above: _rm mark, _rid job, _rn attempt, _rnonce, _rname session, _rnamed (yes when
# somebody chose that name), _rcwd, _rlog, _rmax, _rgpus, _rshell, _rpause; and the functions write_command,
# write_runner, write_viewer, launch and launch_apart. Whoever calls waits for the end of this: it starts as few
# programs as it can, and what takes long goes on beside the rest. The runner comes up at once, begins when it reads a
# word from us, and never when there is none; the view of the log is made when all is said.
exec </dev/null
_rjob=$_rroot/jobs/$_rid _rdir=$_rroot/jobs/$_rid/$_rn
_rowned= _rmadelog= _rmadefrom= _rclaims= _rdevices= _rvendor= _rspeaks= _rasking= _rformer=
_rnl='
'
start_of $$
_rself=$_rstart

# Removes a folder and those above it, as far as they are empty, up to one that was there before. Some may never have been
# made, and one that is named by two dots is named again by what stands before them.
remove_up_to() {
  _rx=$1
  while [ -n "$_rx" ] && [ "$_rx" != "$2" ] && [ "$_rx" != / ]; do
    case $_rx in */..) ;; *) rmdir "$_rx" 2>/dev/null || [ ! -d "$_rx" ] || break ;; esac
    _rx=${_rx%/*}
  done
}

# Says to the runner how it goes on, for the last time; it may be gone.
tell_runner() {
  printf '%s\n' "$*" >&6
  exec 6>&-
  _rspeaks=
}

# A file server keeps what somebody has open, and a runner that goes has its file open for a moment.
remove_folder() {
  _rtry=0
  rm -rf "$_rdir" 2>/dev/null
  while [ -d "$_rdir" ] && [ $_rtry -lt 20 ]; do
    nap 0.05
    rm -rf "$_rdir" 2>/dev/null
    _rtry=$((_rtry + 1))
  done
}

refuse() {
  [ -z "$_rspeaks" ] || tell_runner exit 2>/dev/null
  # It would still write into the folder that goes.
  [ -z "$_rasking" ] || wait $_rasking
  release_claims
  [ -z "$_rowned" ] || remove_folder
  remove_up_to "$_rjob" "${HOME-}"
  rmdir "$_rroot/claims/$_rboot/session-$_rname" 2>/dev/null
  remove_up_to "$_rroot/claims/$_rboot" "${HOME-}"
  [ -z "$_rmadelog" ] || [ -s "$_rlog" ] || rm -f "$_rlog"
  [ -z "$_rmadefrom" ] || remove_up_to "${_rlog%/*}" "$_rmadefrom"
  [ -z "$2" ] || say "detail:$(printf %s "$2" | tr '\n' ' ' | cut -c1-300)"
  say "verdict:refused:$1"
  say over
  exit 0
}

# What the system says about a thing that did not work.
refuse_write() {
  case $2 in
  *'o space'* | *'uota'* | *'File too large'*) refuse space "$2" ;;
  *) refuse "$1" "$2" ;;
  esac
}

starter_lives() {
  _rp= _rs=
  [ ! -f "$_rdir/claim" ] || read -r _rx _rx _rp _rs <"$_rdir/claim"
  start_of "$_rp" && [ "$_rstart" = "$_rs" ]
}

# This number is taken: by an earlier sending of the same start, or by somebody else.
taken() {
  _rtry=0
  while [ ! -s "$_rdir/nonce" ] && [ $_rtry -lt 40 ]; do nap 0.05; _rtry=$((_rtry + 1)); done
  _rx=
  [ ! -f "$_rdir/nonce" ] || read -r _rx <"$_rdir/nonce"
  [ "$_rx" = "$_rnonce" ] || refuse "attempt:$_rn:$_rx" ''
  _rtry=0
  while [ ! -e "$_rdir/process" ] && [ $_rtry -lt 60 ] && starter_lives; do nap 0.05; _rtry=$((_rtry + 1)); done
  if [ ! -e "$_rdir/process" ]; then
    ! starter_lives || refuse starting ''
    void_attempt "$_rdir"
    case $? in
    0) refuse abandoned '' ;;
    # Its runner may still come up: whoever asks again finds out.
    2) refuse starting '' ;;
    esac
  fi
  read -r _rx <"$_rdir/process"
  [ "$_rx" != void ] || refuse abandoned ''
  tell unknown again
  exit 0
}

# Begins to ask tmux for its sessions.
ask_tmux() {
  (
    LC_ALL=C
    export LC_ALL
    bounded 5 tmux list-sessions -F '#{session_name}' >"$_rdir/sessions" 2>&1
    printf '%s\n' $? >"$_rdir/asked"
  ) >/dev/null 2>&1 6>&- &
  _rasking=$!
}

# Waits for what it says; the same as `list_sessions` otherwise.
hear_tmux() {
  wait $_rasking
  _rasking= _rx= _rsessions=
  [ ! -s "$_rdir/asked" ] || read -r _rx <"$_rdir/asked"
  [ ! -s "$_rdir/sessions" ] || while IFS= read -r _rline; do _rsessions="$_rsessions$_rline$_rnl"; done <"$_rdir/sessions"
  judge_sessions "$_rx"
}

# Refuses a name that somebody chose and a live session has; tmux is being asked. A view of a job that is over goes.
settle_name() {
  hear_tmux || refuse tmux "$_rwhy"
  _ragain=0
  while :; do
    case "$_rnl$_rsessions$_rnl" in *"$_rnl$_rname$_rnl"*) ;; *) return ;; esac
    _rwhose=$(shown_in "$_rname")
    case $_rwhose in
    job_*.[0-9]*)
      ! attempt_lives "$_rroot/jobs/${_rwhose%.*}/${_rwhose##*.}" || refuse "session:${_rwhose%.*}" ''
      bounded 5 tmux kill-session -t "=$_rname" >/dev/null 2>&1
      return
      ;;
    esac
    # One that goes at this moment does not say any more whose it is.
    [ $_ragain -lt 5 ] || refuse session: ''
    _ragain=$((_ragain + 1))
    nap 0.1
    list_sessions || refuse tmux "$_rwhy"
  done
}

# Makes the session in which the log is shown; nobody waits for it. Matching is exact where a name is given to it; where
# tmux looks for one, it would take the beginning of a name, or a pattern, for it.
show() {
  # First the answer and the job: tmux would take the processor from them.
  nap 0.02
  write_viewer >"$_rdir/viewer" || return
  _rwhose=
  [ -n "$_rnamed" ] || _rwhose=$(shown_in "$_rname")
  # That of an earlier attempt, which is over.
  case $_rwhose in "$_rid".[0-9]*) bounded 5 tmux kill-session -t "=$_rname" ;; esac
  bounded 5 tmux new-session -d -s "$_rname" -- "$_rsh" "$_rdir/viewer" "$_rdir" "$_rlog" \; \
    set-option -t "=$_rname:" @remote-sandbox-job "$_rid.$_rn" \; \
    set-option -t "=$_rname:" remain-on-exit off
}

# Waits for the runner to pass its gate. It mostly has by the time of the second look; looking without a pause would take
# the processor from it.
await_runner() {
  _rtry=0
  while [ ! -s "$_rdir/process" ] && [ $_rtry -lt 4 ]; do nap 0.005; _rtry=$((_rtry + 1)); done
  while [ ! -s "$_rdir/process" ] && [ $_rtry -lt 504 ]; do nap 0.02; _rtry=$((_rtry + 1)); done
}

# No attempt may run beside another one. What has not begun by now never will.
settle_others() {
  for _rx in "$_rjob"/*; do
    _rother=${_rx##*/}
    case $_rother in '' | *[!0-9]*) continue ;; esac
    [ "$_rother" != "$_rn" ] || continue
    if [ "$_rother" -gt "$_rn" ]; then
      _rx=
      [ ! -f "$_rjob/$_rother/nonce" ] || read -r _rx <"$_rjob/$_rother/nonce"
      refuse "attempt:$_rother:$_rx" ''
    fi
    if [ ! -e "$_rjob/$_rother/process" ]; then
      void_attempt "$_rjob/$_rother"
      [ $? != 2 ] || refuse space "attempt $_rother may still begin: $_rjob/$_rother"
    fi
    attempt_lives "$_rjob/$_rother" || continue
    _rx=
    [ ! -f "$_rjob/$_rother/nonce" ] || read -r _rx <"$_rjob/$_rother/nonce"
    refuse "live:$_rother:$_rx" ''
  done
}

[ -d "${HOME-}" ] || refuse home "HOME is not a folder: ${HOME-}"
[ "$_rdir" != "${_rdir#/}" ] || refuse home "HOME is not absolute: $HOME"
CDPATH= cd "$HOME" 2>/dev/null || refuse home "cannot enter $HOME"
CDPATH= cd "${_rcwd:-.}" >/dev/null 2>&1 || refuse cwd "$( { LC_ALL=C; CDPATH= cd "${_rcwd:-.}"; } 2>&1 )"
_rcwd=$PWD

# Sets _rpath to where a program is, `-` when there is none. Asking the shell costs a process, so it is asked last: it may
# have some within itself.
find_program() {
  _rpath= _rx=$IFS _rfolders=$PATH
  # One that is named by its place is not searched for.
  case $1 in */*) _rfolders= ;; esac
  IFS=:
  set -f
  for _rfolder in $_rfolders; do
    if [ -f "${_rfolder:-.}/$1" ] && [ -x "${_rfolder:-.}/$1" ]; then
      _rpath=${_rfolder:-.}/$1
      break
    fi
  done
  set +f
  IFS=$_rx
  [ -n "$_rpath" ] || _rpath=$(command -v "$1" 2>/dev/null) || _rpath=-
}

# The mask of this shell, of which Linux tells without a process, too.
_rmask=
[ ! -r /proc/self/status ] || while read -r _rx _rmask; do
  case $_rx in Umask:) break ;; State:) _rmask= && break ;; esac
done </proc/self/status
case $_rmask in '' | *[!0-7]*) _rmask=$(umask) ;; esac
# bash tells a command that a signal ended from one that exits with the same number.
find_program bash && _rsh=$_rpath
[ "$_rsh" != - ] || { find_program sh && _rsh=$_rpath; }
find_program setsid && _rsetsid=$_rpath
[ "$_rsetsid" != - ] || { find_program perl && _rsetsid=${_rpath#-}; }
find_program tmux && _rtmux=$_rpath
case $_rshell in
'') _rshell=$_rsh ;;
*) find_program "$_rshell" && [ "$_rpath" != - ] && _rshell=$_rpath || refuse shell '' ;;
esac
umask 077

case $_rlog in
'') _rlog=$_rcwd/.codex_logs/$_rname.log ;;
/*) ;;
*) _rlog=$_rcwd/$_rlog ;;
esac

# The folder of the attempt, which one of several gets. That of a new job is made with it; where two do so at once, and
# each makes one of them, nobody has it.
take_folder() {
  [ -d "$_rroot/jobs" ] || _rx=$(LC_ALL=C; export LC_ALL; exec mkdir -p "$_rroot/jobs" 2>&1) || refuse_write home "$_rx"
  set -- "$_rdir"
  [ -d "$_rjob" ] || set -- "$_rjob" "$_rdir"
  _rx=$(LC_ALL=C; export LC_ALL; exec mkdir "$@" 2>&1) || {
    [ -d "$_rdir" ] || refuse_write home "$_rx"
    taken
  }
  _rowned=yes
  # In this order: whoever reads the nonce finds out who starts it, and can make it void also when the disk is full by then.
  { printf '%s %s %s %s\n' "$_rid" "$_rn" $$ "$_rself" >"$_rdir/claim" && printf 'void\n' >"$_rdir/void" &&
    printf '%s\n' "$_rnonce" >"$_rdir/nonce"; } 2>/dev/null || refuse space "$_rdir"
}

# The log: made with the user's own mask, and opened once before anything is started.
open_log() {
  [ ! -e "$_rlog" ] || [ -f "$_rlog" ] || refuse log "not a file: $_rlog"
  _rmadefrom=${_rlog%/*}
  while [ -n "$_rmadefrom" ] && [ ! -d "$_rmadefrom" ]; do _rmadefrom=${_rmadefrom%/*}; done
  [ -d "${_rlog%/*}/" ] || _rx=$(umask "$_rmask"; LC_ALL=C mkdir -p "${_rlog%/*}/" 2>&1) || refuse_write log "$_rx"
  [ -e "$_rlog" ] || _rmadelog=yes
  umask "$_rmask"
  printf '' 2>/dev/null >>"$_rlog" || { _rx=$( { LC_ALL=C; : >>"$_rlog"; } 2>&1 ) || refuse_write log "$_rx"; }
  umask 077
  [ -f "$_rlog" ] || refuse log "not a file: $_rlog"
  _roffset=0
  if [ -s "$_rlog" ]; then
    set -- $(ls -lnLd "$_rlog" 2>/dev/null)
    _roffset=${5:-0}
  fi
}

# Sets _rformer to the attempts that had this session name before, on whichever boot; claiming it removes their claims.
find_former() {
  for _rentry in "$_rroot"/claims/*/"session-$_rname"/*; do
    _rcjob= _rcn=
    { read -r _rcjob _rcn _rx <"$_rentry"; } 2>/dev/null
    case $_rcjob/$_rcn in "$_rid"/* | *[!0-9a-z_/]* | */*/*) continue ;; job_?*/?*) _rformer="$_rformer $_rcjob/$_rcn" ;; esac
  done
}

# Notes where the log of those ends, which may be lost or have left something running: where ours begins.
note_ends() {
  for _rx in $_rformer; do
    _rx=$_rroot/jobs/$_rx
    [ -f "$_rx/record" ] && [ ! -e "$_rx/log_end" ] || continue
    while IFS= read -r _rline; do
      case $_rline in "log=$_rlog") printf '%s\n' "$_roffset" 2>/dev/null >"$_rx/log_end" ;; esac
    done <"$_rx/record"
  done
}

# Claims the session name that somebody chose; the one that a job has by itself is nobody else's, unless somebody has
# chosen it since.
take_name() {
  [ -n "$_rnamed" ] || [ -d "$_rroot/claims/$_rboot/session-$_rname" ] || return 0
  _rnamed=yes
  find_former
  [ "$_rtmux" = - ] || ask_tmux
  claim "session-$_rname" || refuse "session:$_rheld" ''
  _rclaims=" session-$_rname/$_rmine"
  own_folder "$_rname"
  [ -z "$_rown" ] || ! attempt_lives "$_rown" || { _rx=${_rown%/*} && refuse "session:${_rx##*/}" ''; }
  [ "$_rtmux" = - ] || settle_name
}

# Claims as many GPUs as are wished for, and sets _rvisible to the variable that tells them to programs.
take_devices() {
  _rvisible=
  [ "$_rgpus" != 0 ] || return 0
  _rkept=$_rclaims
  take_gpus || {
    _rclaims=$_rkept
    [ -z "$_rbroken" ] || [ $_rall != 0 ] || refuse "gputool:$_rbroken" "$_rwhy"
    refuse "gpus:$_rfreeall:$_rall" ''
  }
  _rclaims="$_rkept $_rclaims"
  case $_rvendor in
  nvidia) _rvisible=CUDA_VISIBLE_DEVICES ;;
  # The other variable of AMD counts only what this one has left.
  amd) _rvisible=ROCR_VISIBLE_DEVICES ;;
  ascend) _rvisible=ASCEND_RT_VISIBLE_DEVICES ;;
  esac
}

# Arranges all that the runner needs, which comes up meanwhile and reads what this prints. Speaks only when it does not
# begin.
arrange() {
  exec 6>&1 1>&5 5>&-
  trap '' PIPE
  _rspeaks=yes
  take_folder
  write_runner 2>/dev/null >"$_rdir/runner" || refuse space "$_rdir"
  printf '%s\n' '_rx=$1; shift; . "$_rx"' 2>/dev/null >&6
  settle_others
  open_log
  write_command 2>/dev/null >"$_rdir/command" || refuse space "$_rdir"
  take_name
  take_devices

  # Room for the record of the end, which must be written also when the disk is full by then.
  { printf '%512s\n' '' >"$_rdir/exit.new" && {
    printf 'nonce=%s\njob=%s\nattempt=%s\nsession=%s\nboot=%s\nmax_log=%s\n' "$_rnonce" "$_rid" "$_rn" "$_rname" "$_rboot" "$_rmax"
    printf 'offset=%s\ngpus=%s\ncwd=%s\nlog=%s\n' "$_roffset" "${_rvendor:+$_rvendor:$_rdevices}" "$_rcwd" "$_rlog"
  } >"$_rdir/record"; } 2>/dev/null || refuse_write space "$_rdir"
  [ -s "$_rdir/record" ] || refuse space "$_rdir"
  note_ends

  tell_runner go "$_rvisible" "$_rdevices" 2>/dev/null
  await_runner
  if [ ! -e "$_rdir/process" ]; then
    void_attempt "$_rdir"
    case $? in
    # Its folder stays: nobody may begin in it any more.
    0) _rowned= && refuse not_started '' ;;
    # Its runner may still come up, so everything stays as it is.
    2) say verdict:refused:starting && say over && exit 0 ;;
    esac
  fi
  read -r _rx <"$_rdir/process"
  [ "$_rx" != void ] || { _rowned=; refuse abandoned ''; }
}

# Says that the attempt runs, when its runner says so.
hear() {
  exec >&5 5>&-
  _rx=
  read -r _rx
  [ "$_rx" = began ] || exit 0
  _rview=no
  [ "$_rtmux" = - ] || _rview=later
  tell $_rview started
  [ "$_rtmux" != - ] || exit 0
  # In parentheses: a shell that only redirects a function keeps what it redirected, and whoever asked would wait.
  (show) </dev/null >/dev/null 2>&1 &
}

exec 5>&1
# In parentheses: zsh would end with the shell that the launch ends.
arrange | { launch_apart || (launch; :); } 2>/dev/null 5>&- | hear
exit 0

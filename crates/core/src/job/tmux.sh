# Asking tmux, whose server may hang, be of another version, or belong to somebody else.

# Runs a program for at most so many seconds. What ends it when they are over is ended with it.
bounded() {
  _rlimit=$1
  shift
  "$@" &
  _rtool=$!
  (
    # Until it sleeps, the last process in the background is the program itself.
    trap '[ "$!" = "$_rtool" ] || kill -KILL "$!"; exit 0' TERM
    sleep "$_rlimit" &
    wait $! && kill -KILL $_rtool
  ) >/dev/null 2>&1 &
  _rguard=$!
  wait $_rtool
  _rended=$?
  kill $_rguard 2>/dev/null
  wait $_rguard 2>/dev/null
  return $_rended
}

# Sets _rsessions to the names of all sessions, one on a line. Fails when the server cannot be asked, which is not a
# server without sessions; _rwhy says why.
list_sessions() {
  _rsessions=$(LC_ALL=C; export LC_ALL; bounded 5 tmux list-sessions -F '#{session_name}' 2>&1)
  judge_sessions $?
}

# Judges what it said, with the number it ended with.
judge_sessions() {
  _rwhy=
  case $1 in
  0) return 0 ;;
  137) _rwhy='tmux did not answer within 5 seconds' ;;
  *) _rwhy=$_rsessions ;;
  esac
  _rsessions=
  case $_rwhy in
  *'no server running'* | *'o such file or directory'* | *'no sessions'* | *'onnection refused'*) return 0 ;;
  # It ended with its last session while it was asked.
  *'server exited'* | *'lost server'*) return 0 ;;
  esac
  [ -n "$_rwhy" ] || _rwhy='tmux list-sessions failed'
  return 1
}

# Says which attempt of a job a session shows.
shown_in() { bounded 5 tmux show-options -qv -t "=$1:" @remote-sandbox-job 2>/dev/null; }

# Ends the view of an attempt. Arguments: session, attempt.
end_view() {
  command -v tmux >/dev/null 2>&1 && [ "$(shown_in "$1")" = "$2" ] || return 0
  bounded 5 tmux kill-session -t "=$1" >/dev/null 2>&1
}

# Ends one attempt of a job. Given above: _rm mark, _rid job, _rn attempt, _rnonce, _rname session, _ronly (yes when
# nothing is to be ended that has begun), and processes, which finds and ends.
exec </dev/null
umask 077
_rdir=$_rroot/jobs/$_rid/$_rn
finish() {
  if command -v tmux >/dev/null 2>&1 && [ "$(tmux show-options -qv -t "=$_rname:" @remote-sandbox-job 2>/dev/null)" = "$_rid.$_rn" ]; then
    tmux kill-session -t "=$_rname" 2>/dev/null
  fi
  say "verdict:$1"
  exit 0
}
# What was never started must not be started later by somebody who is slow.
if [ ! -e "$_rdir/process" ]; then
  mkdir -p "$_rdir" 2>/dev/null || finish unwritable
  [ -e "$_rdir/nonce" ] || printf '%s\n' "$_rnonce" >"$_rdir/nonce"
  ! void_attempt "$_rdir" || finish voided
fi
_rx=
[ ! -f "$_rdir/nonce" ] || read -r _rx <"$_rdir/nonce"
[ "$_rx" = "$_rnonce" ] || finish other
_rx=
read -r _rx <"$_rdir/process"
[ "$_rx" != void ] || finish voided
[ -z "$_ronly" ] || { say verdict:begun; exit 0; }
[ ! -e "$_rdir/exit" ] || finish over
_rpid= _rwas= _rthen= _rlead=0
read -r _rpid _rwas _rthen _rlead _rx <"$_rdir/process"
[ "$_rthen" = "$_rboot" ] || finish over
q=${_rlead:-0} b=${_rwas:-0} k=$_rid.$_rn
case $q in *[!0-9]*) q=0 ;; esac
# The mark says that whatever end is found was our doing; what has ended by itself gets none.
if attempt_lives "$_rdir"; then
  { printf '%s\n' "$_rnonce" >"$_rdir/stop.new" && mv "$_rdir/stop.new" "$_rdir/stop"; } 2>/dev/null || say note:unmarked
fi
(t=$_rm.found mode=look; processes)
(t=$_rm.ended mode=end; processes)
finish ended

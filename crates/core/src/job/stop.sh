# Ends one attempt of a job. Given above: _rm mark, _rid job, _rn attempt, _rnonce, _rname session, _ronly (yes when
# nothing is to be ended that has begun), _rknown what is written down of its process elsewhere (number, start time, boot,
# session), and processes, which finds and ends.
exec </dev/null
umask 077
_rdir=$_rroot/jobs/$_rid/$_rn
finish() {
  end_view "$_rname" "$_rid.$_rn"
  say "verdict:$1"
  exit 0
}
read_nonce() {
  _rx=
  [ ! -f "$_rdir/nonce" ] || read -r _rx <"$_rdir/nonce"
}
# What somebody else is about to start is not ours to keep from it.
read_nonce
[ -z "$_rx" ] || [ "$_rx" = "$_rnonce" ] || finish other
# Ends what is found, and says what that was. Given: q session, b start time of its leader.
end_all() {
  k=$_rid.$_rn
  case $q in '' | *[!0-9]*) q=0 ;; esac
  (t=$_rm.found mode=look; processes)
  (t=$_rm.ended mode=end; processes)
}
# Ends what has begun though its folder says nothing of it.
end_known() {
  [ -z "$_ronly" ] || finish missing
  set -- $_rknown
  q=$4 b=$2
  [ "$3" != "$_rboot" ] || end_all
  finish missing
}
# What had begun does not become void because its folder is not found, which may come back.
[ -z "$_rknown" ] || [ -e "$_rdir/process" ] || end_known
# What was never started must not be started later by somebody who is slow.
if [ ! -e "$_rdir/process" ]; then
  _rmade=
  mkdir -p "${_rdir%/*}" 2>/dev/null
  if mkdir "$_rdir" 2>/dev/null; then _rmade=yes; elif [ ! -d "$_rdir" ]; then finish unwritable; fi
  [ -e "$_rdir/nonce" ] || printf '%s\n' "$_rnonce" 2>/dev/null >"$_rdir/nonce"
  void_attempt "$_rdir"
  case $? in
  0) finish voided ;;
  2)
    # A number that is neither void nor anybody's could never be started.
    [ -z "$_rmade" ] || { rm -f "$_rdir/nonce" && rmdir "$_rdir"; } 2>/dev/null
    finish unwritable
    ;;
  esac
fi
read_nonce
[ "$_rx" = "$_rnonce" ] || finish other
_rx=
read -r _rx <"$_rdir/process"
[ "$_rx" != void ] || { [ -z "$_rknown" ] || end_known; finish voided; }
[ -z "$_ronly" ] || { say verdict:begun; exit 0; }
_rover=
[ ! -e "$_rdir/exit" ] || _rover=yes
_rwas= _rthen=
lives "$_rdir/process" || [ -n "$_rover" ] || ! elsewhere || finish "elsewhere:$_rat:$_rnode"
if [ "$_rthen" != "$_rboot" ]; then
  [ -n "$_rover" ] || [ -z "$_rat" ] || [ "$_rat" = "$_rnode" ] || finish "elsewhere:$_rat:$_rnode"
  finish over
fi
q=${_rlead:-0} b=${_rwas:-0}
# After its end the number of its session may be another's: only what carries its word is certainly its own.
[ -z "$_rover" ] || { q=0; end_all; finish over; }
# The mark says that whatever end is found was our doing; what has ended by itself gets none.
if attempt_lives "$_rdir"; then
  { printf '%s\n' "$_rnonce" >"$_rdir/stop.new" && mv "$_rdir/stop.new" "$_rdir/stop"; } 2>/dev/null || say note:unmarked
fi
end_all
finish ended

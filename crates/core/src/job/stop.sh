# Ends one attempt of a job. Given above: _rm mark, _rid job, _rn attempt, _rnonce, _rname session, _ronly (yes when
# nothing is to be ended that has begun), and processes, which finds and ends.
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
[ "$_rx" != void ] || finish voided
[ -z "$_ronly" ] || { say verdict:begun; exit 0; }
[ ! -e "$_rdir/exit" ] || finish over
_rpid= _rwas= _rthen= _rlead=0 _rat=
read -r _rpid _rwas _rthen _rlead _rat _rx <"$_rdir/process"
if [ "$_rthen" != "$_rboot" ]; then
  [ -z "$_rat" ] || [ "$_rat" = "$_rnode" ] || finish "elsewhere:$_rat:$_rnode"
  finish over
fi
q=${_rlead:-0} b=${_rwas:-0} k=$_rid.$_rn
case $q in *[!0-9]*) q=0 ;; esac
# The mark says that whatever end is found was our doing; what has ended by itself gets none.
if attempt_lives "$_rdir"; then
  { printf '%s\n' "$_rnonce" >"$_rdir/stop.new" && mv "$_rdir/stop.new" "$_rdir/stop"; } 2>/dev/null || say note:unmarked
fi
(t=$_rm.found mode=look; processes)
(t=$_rm.ended mode=end; processes)
finish ended

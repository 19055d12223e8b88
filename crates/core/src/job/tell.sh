# Says what stands in the folder of an attempt that has begun, all of it in one piece: each piece is a message on its way.
# Arguments: whether there is a view, the verdict.
tell() {
  lives "$_rdir/process"
  _rbegin="
RSMCP:$_rm:"
  _rtold="process:$_rpid:$_rwas:$_rthen:$_rlead:$_rat"
  while IFS= read -r _rx; do
    case $_rx in log=* | cwd=* | offset=* | gpus=*) _rtold="$_rtold$_rbegin${_rx%%=*}:${_rx#*=}" ;; esac
  done <"$_rdir/record"
  say "$_rtold${_rbegin}viewer:$1${_rbegin}verdict:$2${_rbegin}over"
}

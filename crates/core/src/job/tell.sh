# Says what stands in the folder of an attempt that has begun, and ends. Arguments: whether there is a view, the verdict.
tell() {
  lives "$_rdir/process"
  say "process:$_rpid:$_rwas:$_rthen:$_rlead:$_rat"
  while IFS= read -r _rx; do
    case $_rx in log=* | cwd=* | offset=* | gpus=*) say "${_rx%%=*}:${_rx#*=}" ;; esac
  done <"$_rdir/record"
  say "viewer:$1"
  say "verdict:$2"
  say over
  exit 0
}

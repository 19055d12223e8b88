# Removes the folders of jobs that are over. Given above: _rm mark; below stands one line for each job.
exec </dev/null
prune() {
  _rjob=$_rroot/jobs/$1
  for _ra in "$_rjob"/*; do
    [ ! -d "$_ra" ] || ! attempt_lives "$_ra" || { say "lives:$1"; return; }
  done
  rm -rf "$_rjob" 2>/dev/null
  [ -e "$_rjob" ] || say "gone:$1"
}

# Removes claims of jobs of which nothing is left, also those of earlier boots. A number that becomes free so harms
# nobody: whoever takes one looks at all others afterwards.
sweep_claims() {
  _rseen=0
  for _rentry in "$_rroot"/claims/*/*/*; do
    case ${_rentry##*/} in *[!0-9]*) continue ;; esac
    [ $_rseen -lt 2000 ] || break
    _rseen=$((_rseen + 1))
    _rcjob=
    { read -r _rcjob _rx <"$_rentry"; } 2>/dev/null
    case $_rcjob in job_*/* | job_*.* | '') continue ;; job_*) ;; *) continue ;; esac
    [ ! -e "$_rroot/jobs/$_rcjob" ] || continue
    rm -f "$_rentry"
    rmdir "$_rentry.taken" "${_rentry%/*}" 2>/dev/null
  done
  for _rentry in "$_rroot"/claims/*; do
    [ "${_rentry##*/}" = "$_rboot" ] || rmdir "$_rentry" 2>/dev/null
  done
}

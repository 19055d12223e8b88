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

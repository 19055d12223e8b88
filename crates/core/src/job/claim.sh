# Claims on what only one job may have: a session name, a GPU. Each thing has a folder, and in it numbered claims; the
# highest number holds. A claim is never broken: who finds its job over takes the next number, which only one can. A
# living start may withdraw its own; a claim of a job that is over stays until there is a higher one.

# Whether the job that a claim names still has a right to it. Sets _rgone when the claim was withdrawn meanwhile.
claim_lives() {
  _rgone=
  { read -r _rcjob _rcn _rcpid _rcstart _rx <"$1"; } 2>/dev/null || { _rgone=yes; return 1; }
  _rcdir=$_rroot/jobs/$_rcjob/$_rcn
  if [ ! -e "$_rcdir/process" ]; then
    [ -d "$_rcdir" ] || return 1
    start_of "$_rcpid" && [ "$_rstart" = "$_rcstart" ] && return 0
    # Whoever was about to start it is gone; it may have started it just before.
    void_attempt "$_rcdir" && return 1
  fi
  attempt_lives "$_rcdir"
}

# Sets _rtop to the highest number in a folder of claims.
top_claim() {
  _rtop=0
  for _rx in "$1"/*; do
    _rx=${_rx##*/}
    case $_rx in '' | *[!0-9]*) continue ;; esac
    [ "$_rx" -le "$_rtop" ] || _rtop=$_rx
  done
}

# Claims a thing for this start. Sets _rheld to the job that has it otherwise.
claim() {
  _rplace=$_rroot/claims/$_rboot/$1
  _rheld=
  _rtry=0
  while [ $_rtry -lt 20 ]; do
    _rtry=$((_rtry + 1))
    mkdir -p "$_rplace" 2>/dev/null || return 1
    top_claim "$_rplace"
    if [ $_rtop -gt 0 ] && claim_lives "$_rplace/$_rtop"; then
      _rheld=$_rcjob
      return 1
    fi
    [ $_rtop = 0 ] || [ -z "$_rgone" ] || continue
    _rmine=$((_rtop + 1))
    printf '%s %s %s %s\n' "$_rid" "$_rn" $$ "$_rself" 2>/dev/null >"$_rplace/new.$$" || continue
    take "$_rplace/new.$$" "$_rplace/$_rmine"
    _rgot=$?
    rm -f "$_rplace/new.$$"
    [ $_rgot = 0 ] || continue
    top_claim "$_rplace"
    # A number that was free because its claim is long over: somebody has a higher one.
    if [ $_rtop != $_rmine ]; then
      rm -f "$_rplace/$_rmine"
      continue
    fi
    for _rx in "$_rplace"/*; do
      case ${_rx##*/} in *[!0-9]* | "$_rmine") ;; *) rm -f "$_rx" ;; esac
    done
    return 0
  done
  return 1
}

# Withdraws what this start has claimed; it must still be alive and have its folder, see above.
release_claims() {
  for _rx in $_rclaims; do
    rm -f "$_rroot/claims/$_rboot/$_rx"
    rmdir "$_rroot/claims/$_rboot/${_rx%/*}" 2>/dev/null
  done
  _rclaims=
}

# Claims on what only one job may have: a session name, a GPU. Each thing has a folder, and in it numbered claims. Who
# finds the job of the highest one over takes the next number, which only one can. A number may be slow to be taken, and
# those above it may be gone by then; so whoever has taken one looks at all others after that and gives way to any that
# lives: of two, at least one sees the other. Only a claim whose job is over is removed by others; a living start may
# withdraw its own.

# Whether the job that a claim names still has a right to it. Sets _rgone when the claim was withdrawn meanwhile.
claim_lives() {
  _rgone=
  { read -r _rcjob _rcn _rcpid _rcstart _rx <"$1"; } 2>/dev/null || { _rgone=yes; return 1; }
  _rcdir=$_rroot/jobs/$_rcjob/$_rcn
  if [ ! -e "$_rcdir/process" ]; then
    [ -d "$_rcdir" ] || return 1
    start_of "$_rcpid" && [ "$_rstart" = "$_rcstart" ] && return 0
    # Whoever was about to start it is gone; it may have started it just before.
    void_attempt "$_rcdir"
    case $? in
    0) return 1 ;;
    # It may still begin.
    2) return 0 ;;
    esac
  fi
  attempt_lives "$_rcdir"
}

# Sets _rtop to the highest number in a folder of claims, or of attempts.
top_claim() {
  _rtop=0
  for _rx in "$1"/*; do
    _rx=${_rx##*/}
    case $_rx in '' | *[!0-9]*) continue ;; esac
    [ "$_rx" -le "$_rtop" ] || _rtop=$_rx
  done
}

# Sets _rown to the folder of the newest attempt of the job that has a session name by itself, without a claim.
own_folder() {
  _rown=
  case $1 in bg-*[!0-9a-z]*) return ;; bg-?*) ;; *) return ;; esac
  top_claim "$_rroot/jobs/job_${1#bg-}"
  [ "$_rtop" = 0 ] || _rown=$_rroot/jobs/job_${1#bg-}/$_rtop
}

remove_claim() {
  rm -f "$1"
  rm -rf "$1.taken"
}

# Whether no claim but ours can hold. Sets _rheld to the job that has another one.
is_alone() {
  for _rentry in "$_rplace"/*; do
    _rother=${_rentry##*/}
    case $_rother in '' | *[!0-9]* | "$_rmine") continue ;; esac
    [ "$_rother" -lt "$_rmine" ] || return 1
    ! claim_lives "$_rentry" || { _rheld=$_rcjob; return 1; }
  done
}

# Claims a thing for this start. Sets _rheld to the job that has it otherwise. All claims of a start are names of one
# file in its folder.
claim() {
  _rplace=$_rroot/claims/$_rboot/$1
  _rheld=
  _rtry=0
  while [ $_rtry -lt 20 ]; do
    _rtry=$((_rtry + 1))
    # Whoever gives up at this moment takes empty folders away.
    [ -d "$_rplace" ] || mkdir -p "$_rplace" 2>/dev/null || continue
    top_claim "$_rplace"
    if [ $_rtop -gt 0 ] && claim_lives "$_rplace/$_rtop"; then
      _rheld=$_rcjob
      return 1
    fi
    [ $_rtop = 0 ] || [ -z "$_rgone" ] || continue
    _rmine=$((_rtop + 1))
    take "$_rdir/claim" "$_rplace/$_rmine" || continue
    if ! is_alone; then
      remove_claim "$_rplace/$_rmine"
      nap 0.05
      continue
    fi
    for _rentry in "$_rplace"/*; do
      case ${_rentry##*/} in *[!0-9]* | "$_rmine") ;; *) remove_claim "$_rentry" ;; esac
    done
    _rheld=
    return 0
  done
  return 1
}

# Withdraws what this start has claimed; it must still be alive and have its folder, see above.
release_claims() {
  for _rentry in $_rclaims; do
    remove_claim "$_rroot/claims/$_rboot/$_rentry"
    rmdir "$_rroot/claims/$_rboot/${_rentry%/*}" 2>/dev/null
  done
  _rclaims=
}

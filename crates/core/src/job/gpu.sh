# Which GPUs are free, and taking some of them. A device is free when no process computes on it and no more of its
# memory is used than drivers keep: a tenth, or 512 MiB.

# Runs a tool for at most ten seconds and leaves what it says in a file. Sets _rhung when it did not end by then.
asked() {
  [ -z "$_rhung" ] || return 1
  "$@" >"$_rdir/gpu" 2>"$_rdir/gpu.why" &
  _rtool=$!
  _rnaps=0
  while kill -0 $_rtool 2>/dev/null; do
    [ $_rnaps -lt 200 ] || { _rhung=yes; kill -KILL $_rtool 2>/dev/null; return 1; }
    _rnaps=$((_rnaps + 1))
    nap 0.05
  done
  wait $_rtool
}

has_room() {
  case $1 in '' | *[!0-9]*) return 1 ;; esac
  case $2 in '' | 0 | *[!0-9]*) return 1 ;; esac
  [ "$1" -le 512 ] || [ "$1" -le $(($2 / 10)) ]
}

# Each of these sets _rfree to the free devices and _rmany to how many there are.
free_nvidia() {
  _rbusy=' '
  asked nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader || return 1
  while IFS=', ' read -r _ruuid _rx; do _rbusy="$_rbusy$_ruuid "; done <"$_rdir/gpu"
  asked nvidia-smi --query-gpu=index,uuid,memory.used,memory.total,mig.mode.current --format=csv,noheader,nounits ||
    asked nvidia-smi --query-gpu=index,uuid,memory.used,memory.total --format=csv,noheader,nounits || return 1
  while IFS=', ' read -r _rindex _ruuid _rused _rtotal _rmig; do
    case $_rindex in '' | *[!0-9]*) continue ;; esac
    _rmany=$((_rmany + 1))
    case $_rbusy in *" $_ruuid "* | *" MIG-$_ruuid/"*) continue ;; esac
    # A divided GPU cannot be had as a whole.
    case $_rmig in Enabled*) continue ;; esac
    has_room "$_rused" "$_rtotal" && _rfree="$_rfree $_rindex"
  done <"$_rdir/gpu"
}

free_amd() {
  _rbusy=' '
  asked rocm-smi --showpidgpus || return 1
  while read -r _rindex _rx; do
    # One index on a line, or several.
    case "$_rindex $_rx" in '' | *[!0-9\ ]*) continue ;; esac
    _rbusy="$_rbusy$_rindex $_rx "
  done <"$_rdir/gpu"
  asked rocm-smi --showmeminfo vram --csv || return 1
  while IFS=, read -r _rindex _rtotal _rused _rx; do
    case $_rindex in card[0-9]*) _rindex=${_rindex#card} ;; *) continue ;; esac
    _rmany=$((_rmany + 1))
    case $_rbusy in *" $_rindex "*) continue ;; esac
    case $_rused$_rtotal in '' | *[!0-9]*) continue ;; esac
    has_room $((_rused / 1048576)) $((_rtotal / 1048576)) && _rfree="$_rfree $_rindex"
  done <"$_rdir/gpu"
}

# Two lines for each chip, and then a table of processes.
free_ascend() {
  _rbusy=' ' _rupper= _rlater= _rchips= _rtold=' '
  asked npu-smi info || return 1
  while IFS='|' read -r _rx _rone _rtwo _rthree _rx; do
    case "$_rone$_rtwo" in *'Process id'*) _rlater=yes && continue ;; esac
    set -- $_rone
    if [ -n "$_rlater" ]; then
      case "$1 ${2-}" in
      [0-9]*\ [0-9]*) _rbusy="$_rbusy$1:$2 " _rtold="$_rtold$1 " ;;
      'No running') while [ $# -gt 1 ]; do shift; done && _rtold="$_rtold$1 " ;;
      esac
      continue
    fi
    case ${1-} in '' | *[!0-9]*) _rupper= && continue ;; esac
    if [ -z "$_rupper" ]; then
      _rupper=$1 _rhealth=${_rtwo# }
      continue
    fi
    _rchip=$1 _rindex=${2-$_rmany}
    _rmany=$((_rmany + 1))
    _rfigures=$(printf %s "$_rthree" | tr / ' ')
    set -- $_rfigures
    # The last pair of figures is the larger memory, where the card has it.
    while [ $# -gt 3 ]; do shift; done
    [ $# = 3 ] && shift
    case $_rhealth in OK*) has_room "${1-}" "${2-}" && _rchips="$_rchips $_rupper:$_rchip:$_rindex" ;; esac
    _rupper=
  done <"$_rdir/gpu"
  for _rx in $_rchips; do
    # A card about whose processes nothing was said is not free.
    case $_rtold in *" ${_rx%%:*} "*) ;; *) continue ;; esac
    case $_rbusy in *" ${_rx%:*} "*) ;; *) _rfree="$_rfree ${_rx##*:}" ;; esac
  done
}

# Claims devices of one vendor until there are enough, or lets go of all.
claim_devices() {
  _rdevices= _rcount=0
  for _rdevice in $_rfree; do
    [ $_rcount -lt "$_rwant" ] || break
    claim "gpu-$1-$_rdevice" || continue
    _rdevices="$_rdevices,$_rdevice" _rcount=$((_rcount + 1))
    _rclaims="$_rclaims gpu-$1-$_rdevice/$_rmine"
  done
  _rdevices=${_rdevices#,}
  [ $_rcount = "$_rwant" ] && return 0
  # All were tried: what could not be claimed is not free.
  _rfreeall=$((_rfreeall + _rcount))
  release_claims
  return 1
}

# Notes that a tool did not tell which devices there are; one that has none is no failure.
note_failure() {
  if grep -qi 'no devices' "$_rdir/gpu" "$_rdir/gpu.why" 2>/dev/null; then return; fi
  _rbroken=$_rtoolname
  if [ -n "$_rhung" ]; then
    _rwhy='it did not end within 10 seconds'
  else
    _rwhy=$(cat "$_rdir/gpu.why" "$_rdir/gpu" 2>/dev/null | head -n 3)
  fi
}

# Sets _rvendor and _rdevices. Who leaves the number to us gets one, and goes without where there is no GPU at all. Fails
# with _rbroken set where a tool failed: nobody knows then what is free.
take_gpus() {
  _rvendor= _rdevices= _rall=0 _rwant=$_rgpus _rclaims= _rfreeall=0 _rbroken= _rwhy=
  [ "$_rgpus" != auto ] || _rwant=1
  for _rvendor in nvidia amd ascend; do
    case $_rvendor in nvidia) _rtoolname=nvidia-smi ;; amd) _rtoolname=rocm-smi ;; ascend) _rtoolname=npu-smi ;; esac
    command -v $_rtoolname >/dev/null 2>&1 || continue
    _rfree= _rmany=0 _rhung=
    free_$_rvendor || { _rfree= && note_failure; }
    _rall=$((_rall + _rmany))
    rm -f "$_rdir/gpu" "$_rdir/gpu.why"
    claim_devices $_rvendor && return 0
  done
  _rvendor=
  [ "$_rgpus" = auto ] && [ $_rall = 0 ] && [ -z "$_rbroken" ]
}

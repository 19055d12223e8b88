# Says what a start did whose answer was lost, and does nothing. Given above: _rm mark, _rid job, _rn attempt, _rnonce.
exec </dev/null
_rdir=$_rroot/jobs/$_rid/$_rn
_rx=
[ ! -f "$_rdir/nonce" ] || read -r _rx <"$_rdir/nonce"
if [ "$_rx" = "$_rnonce" ] && [ -f "$_rdir/process" ] && [ -f "$_rdir/record" ]; then
  read -r _rx <"$_rdir/process"
  [ "$_rx" = void ] || { tell unknown again; exit 0; }
fi
say verdict:nothing
exit 0

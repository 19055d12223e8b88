# Looks at a host for `doctor`. POSIX sh; no word of it is the caller's, and nothing is written.
# Given above: n, the mark of this report.
say() { printf 'RSMCP:%s:%s:%s\n' "$n" "$1" "$2"; }
have() { command -v "$1" >/dev/null 2>&1; }
say time "$(date +%s 2>/dev/null)"
say system "$(uname -sr 2>/dev/null)"
say login "${SHELL-}"
# A tool on a dead network disk must not keep the others waiting.
limit=; timeout 5 true >/dev/null 2>&1 && limit='timeout 5'
# The first line that a tool says about its version.
version() {
  have "$2" || { say "$1" none; return; }
  say "$1" "have:$($limit "$2" "$3" </dev/null 2>&1 | head -n 1)"
}
version bash bash --version
version tmux tmux -V
version python python3 --version
version tar tar --version
if ! have timeout; then say timeout none
elif timeout -k 1 5 true >/dev/null 2>&1; then say timeout have:k
elif timeout 5 true >/dev/null 2>&1; then say timeout have:p
else say timeout have:other
fi
if ! have find; then say find none
elif [ "$($limit find / -maxdepth 0 -printf g </dev/null 2>/dev/null)" = g ]; then say find have:g
else say find have:p
fi
fill() { $limit df "$1" "$2" </dev/null 2>/dev/null | tail -n 1; }
[ -n "${HOME-}" ] && { say disk "home $(fill -Pk "$HOME")"; say inodes "home $(fill -Pi "$HOME")"; }
say disk "/tmp $(fill -Pk /tmp)"
say inodes "/tmp $(fill -Pi /tmp)"
say end ''

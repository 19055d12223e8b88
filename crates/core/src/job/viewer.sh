# Shows the log of a job in a terminal for as long as the job runs. Arguments: folder, log.
trap : INT QUIT
tail -n 1000 -F "$2" 2>/dev/null &
_rtail=$!
trap 'kill $_rtail 2>/dev/null; exit 0' TERM HUP
while attempt_lives "$1"; do sleep 1; done
kill $_rtail 2>/dev/null

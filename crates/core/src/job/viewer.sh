# Shows the log of a job in a terminal for as long as the job runs. Arguments: folder, log.
trap : INT QUIT
tail -n 1000 -F "$2" 2>/dev/null &
_rtail=$!
trap 'kill $_rtail 2>/dev/null; exit 0' TERM HUP
# What outlives the command itself is not waited for: looking for that every second is too much.
while [ ! -e "$1/exit" ] && { lives "$1/process" || lives "$1/child"; }; do sleep 1; done
kill $_rtail 2>/dev/null

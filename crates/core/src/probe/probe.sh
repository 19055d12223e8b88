# Prints one report about this machine: load, memory, disks, GPUs.
# POSIX sh only. No temporary file, nothing written, and only processes started here are ever signalled.
#
# Every section lies between "@@NONCE begin NAME" and "@@NONCE end VERDICT", so that what a tool prints cannot pass
# for a section. VERDICT is an exit status, "hung", "cut" (too much output) or "lost".

nonce=@NONCE@
limit=@LIMIT@
most_bytes=65536
most_lines=256
collecting= processes= noted=0 report=
newline='
'

# Sections of tools go out as they come.
open_section() { printf '\n@@%s begin %s\n' "$nonce" "$1"; }
close_section() { printf '\n@@%s end %s\n' "$nonce" "$1"; }

# All others are collected and go out in one piece: each write would cost the server of this host a packet.
say() { report="$report$1$newline"; }
section() {
    say "$newline@@$nonce begin $1"
    shift
    "$@"
    say "$newline@@$nonce end $?"
}
send_report() {
    printf '%s' "$report"
    report=
}

# Only for what every machine with a /proc file does without: each costs a process or more.
say_output() {
    output=$("$@")
    status=$?
    say "$output"
    return "$status"
}

read_line() {
    line=
    [ -r "$1" ] && IFS= read -r line <"$1"
}

# Stops a tool that outlives the limit. A process stuck in the kernel survives even KILL, so the verdict is written
# first and nobody waits for the death; STOP comes before it so that a flood cannot keep the verdict out of the pipe.
watch_tool() {
    nap= ended=
    # KILL, because a child that has not yet become the sleep would swallow TERM in the trap it inherited.
    trap 'ended=yes; [ -z "$nap" ] || kill -KILL "$nap"' TERM
    sleep "$limit" >/dev/null &
    nap=$!
    # The tool may have ended, and the trap run, before the sleep had a name.
    [ -z "$ended" ] || kill -KILL "$nap"
    wait "$nap"
    [ -z "$ended" ] || return
    kill -STOP "$tool"
    printf '\n@@%s stop hung\n' "$nonce"
    kill -KILL "$tool"
}

supervise() {
    "$@" 2>&1 &
    tool=$!
    watch_tool &
    watcher=$!
    wait "$tool"
    status=$?
    kill "$watcher"
    printf '\n@@%s stop %s\n' "$nonce" "$status"
}

# Copies lines until the verdict comes. It does not wait for the end of the pipe, which a stuck tool may hold open.
relay() {
    size=0
    verdict=lost
    instances=
    while IFS= read -r line; do
        case $line in
        "@@$nonce stop "*)
            verdict=${line#"@@$nonce stop "}
            break
            ;;
        esac
        size=$((size + ${#line} + 1))
        if [ "$size" -gt "$most_bytes" ]; then
            verdict=cut
            break
        fi
        [ -z "$collecting" ] || note_processes "$line"
        case $line in "  MIG "*) instances=yes ;; esac
        printf '%s\n' "$line"
    done
    close_section "$verdict"
    [ "$verdict" = 0 ]
}

# Runs a tool for at most the limit. The left side ends at once: the shell must not wait for the tool itself.
bounded() { { supervise "$@" & } | relay; }

# Looks a word up in a file of keys and values, without starting a process.
find_value() {
    value=
    [ -r "$1" ] || return 1
    while read -r key value; do
        [ "$key" != "$2" ] || return 0
    done <"$1"
    value=
    return 1
}

# Counts the processors that are in both of two lists such as "0-3,8".
count_common() {
    words=$IFS
    IFS=,
    common=0
    for one in $1; do
        for other in $2; do
            low=${one%-*} high=${one#*-}
            [ "$low" -ge "${other%-*}" ] || low=${other%-*}
            [ "$high" -le "${other#*-}" ] || high=${other#*-}
            [ "$low" -gt "$high" ] || common=$((common + high - low + 1))
        done
    done
    IFS=$words
}

# What nproc counts: the processors that this process may use and that are running. Where neither list holds the
# other, one of them is not about this machine, as in some containers.
count_usable() {
    find_value /proc/self/status Cpus_allowed_list: || return 1
    allowed=$value
    read_line /sys/devices/system/cpu/online || return 1
    online=$line
    case $allowed,$online in *[!0-9,-]* | *[,-][,-]* | [,-]* | *[,-] | ????????????????????????????????*) return 1 ;; esac
    count_common "$allowed" "$allowed"
    size=$common
    count_common "$online" "$online"
    [ "$common" -ge "$size" ] || size=$common
    count_common "$allowed" "$online"
    [ "$common" -gt 0 ] && [ "$common" = "$size" ] && say "$common"
}

ask_cpu_count() {
    # GNU nproc would report these wishes instead of the machine.
    unset OMP_NUM_THREADS OMP_THREAD_LIMIT
    nproc || getconf _NPROCESSORS_ONLN || getconf NPROCESSORS_ONLN || sysctl -n hw.ncpu ||
        grep -c '^processor' /proc/cpuinfo
}

cpu_count() { count_usable || say_output ask_cpu_count; }

ask_load_average() { sysctl -n vm.loadavg || uptime; }

load_average() {
    if read_line /proc/loadavg; then say "$line"; else say_output ask_load_average; fi
}

# Its first lines, to the last one that is of use.
memory_figures() {
    [ -r /proc/meminfo ] || return 1
    count=0
    while IFS= read -r line && [ "$count" -lt "$most_lines" ]; do
        say "$line"
        count=$((count + 1))
        case $line in Cached:*) break ;; esac
    done </proc/meminfo
}

cgroup_memory() {
    maximum= current=
    read -r maximum <"$1/$2"
    # "max", or a number of 16 and more digits, is no limit at all.
    case $maximum in '' | *[!0-9]* | ????????????????*) return ;; esac
    [ -r "$1/$3" ] && read -r current <"$1/$3"
    find_value "$1/memory.stat" "$4"
    say "memory $maximum ${current:--} ${value:--}"
}

cgroup_level() {
    quota= period=
    if [ -r "$1/cpu.max" ]; then
        read -r quota period <"$1/cpu.max"
    elif [ -r "$1/cpu.cfs_quota_us" ] && [ -r "$1/cpu.cfs_period_us" ]; then
        read -r quota <"$1/cpu.cfs_quota_us"
        read -r period <"$1/cpu.cfs_period_us"
    fi
    [ -z "$quota" ] || say "cpu $quota $period"
    if [ -r "$1/memory.max" ]; then
        cgroup_memory "$1" memory.max memory.current inactive_file
    elif [ -r "$1/memory.limit_in_bytes" ]; then
        cgroup_memory "$1" memory.limit_in_bytes memory.usage_in_bytes total_inactive_file
    fi
}

# A limit may sit on any ancestor. Inside a container the path may be the host's; then only the root level exists.
cgroup_levels() {
    level=${2%/}
    depth=0
    while [ "$depth" -lt 16 ]; do
        cgroup_level "$1$level"
        [ -n "$level" ] || break
        level=${level%/*}
        depth=$((depth + 1))
    done
}

cgroup_limits() {
    [ -r /proc/self/cgroup ] || return 1
    while IFS=: read -r number controllers group; do
        case $number:$controllers in
        0:) cgroup_levels /sys/fs/cgroup "$group" ;;
        *:memory | *:memory,* | *,memory | *,memory,*) cgroup_levels /sys/fs/cgroup/memory "$group" ;;
        *:cpu | *:cpu,* | *,cpu | *,cpu,*) cgroup_levels /sys/fs/cgroup/cpu "$group" ;;
        esac
    done </proc/self/cgroup
}

quick_sections() {
    section load load_average
    section count cpu_count
    section meminfo memory_figures
    section cgroup cgroup_limits
    if [ ! -r /proc/meminfo ]; then
        section sysctl say_output sysctl hw.memsize hw.physmem64 hw.physmem hw.pagesize \
            vm.stats.vm.v_free_count vm.stats.vm.v_inactive_count
        section vm_stat say_output vm_stat
    fi
    section gpu_driver gpu_driver
}

say_mark() { printf '\n@@%s %s %s\n' "$nonce" "$1" "$2"; }

# Asks for both disks at once, and meanwhile waits between two readings of the processors' time. A df that is stuck
# in the kernel cannot be waited for; so it is looked at, after the pause that is needed anyway.
measure() {
    read_line /proc/stat
    before=$line
    df -kP /tmp ${HOME:+"$HOME"} &
    tool=$!
    # Where fractions of a second are not understood this fails at once, and there is no second reading.
    sleep 0.1 >/dev/null &
    wait "$!" && read_line /proc/stat || line=
    printf '\n@@%s before %s\n@@%s after %s\n' "$nonce" "$before" "$nonce" "$line"
    for nap in 0.05 0.1 0.2 0.4; do
        kill -0 "$tool" || break
        { sleep "$nap" || sleep 1; } >/dev/null
    done
    if kill -0 "$tool"; then
        kill -STOP "$tool"
        say_mark stop hung
        kill -KILL "$tool"
    else
        wait "$tool"
        say_mark stop "$?"
    fi
}

# Takes what measure prints, to the word that df has ended, or is not waited for.
take_measures() {
    before= after= first= second= rows=-1 size=0 verdict=lost
    while IFS= read -r line; do
        case $line in
        "@@$nonce before "*) before=${line#"@@$nonce before "} ;;
        "@@$nonce after "*) after=${line#"@@$nonce after "} ;;
        "@@$nonce stop "*)
            verdict=${line#"@@$nonce stop "}
            break
            ;;
        ?*)
            size=$((size + ${#line}))
            [ "$size" -le "$most_bytes" ] || break
            rows=$((rows + 1))
            first=$second second=$line
            ;;
        esac
    done
    # Whoever would still write shall not wait, and no tool that is started from here shall keep this open.
    exec </dev/null
}

processor_time() {
    say "$before"
    [ -n "$after" ] && say "$after"
}

disk_row() {
    say "path $1"
    say "$2"
}

# One df for both is only good when both have answered. Where one has not, each has its own, and its own limit.
disk_sections() {
    case $verdict:$rows:$HOME in
    0:2:?*)
        section disk_home disk_row "$HOME" "$second"
        section disk_tmp disk_row /tmp "$first"
        ;;
    0:1:) section disk_tmp disk_row /tmp "$second" ;;
    *)
        send_report
        disk_section disk_tmp /tmp | {
            disk_section disk_home "$HOME"
            cat
        }
        ;;
    esac
}

disk_section() {
    [ -n "$2" ] || return
    open_section "$1"
    printf 'path %s\n' "$2"
    bounded df -kP "$2"
}

machine_sections() {
    measure | {
        quick_sections
        take_measures
        section stat processor_time
        disk_sections
        send_report
    }
}

main() {
    # By exec and not on the call: a shell keeps a copy of what it redirects for one call, and a process left behind
    # would hold the caller's streams open through it.
    exec </dev/null 2>/dev/null
    LC_ALL=C
    PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/nvidia/bin:/usr/lib/wsl/lib
    PATH=$PATH:/opt/rocm/bin:/usr/local/sbin
    export LC_ALL PATH
    find_tools
    # Most hosts have none, and then nothing is started for it.
    if [ -n "$amd$ascend$nvidia" ]; then beside gpu_sections machine_sections; else machine_sections; fi
}

main; exit 0

# Prints one report about this machine: load, memory, disks, GPUs.
# POSIX sh only. No temporary file, nothing written, and only processes started here are ever signalled.
#
# Every section lies between "@@NONCE begin NAME" and "@@NONCE end VERDICT", so that what a tool prints cannot pass
# for a section. VERDICT is an exit status, "hung", "cut" (too much output) or "lost".

nonce=@NONCE@
limit=@LIMIT@
most_bytes=65536
most_lines=256

open_section() { printf '\n@@%s begin %s\n' "$nonce" "$1"; }
close_section() { printf '\n@@%s end %s\n' "$nonce" "$1"; }

# Copies the first lines of a small file without starting a process.
copy_file() {
    [ -r "$1" ] || return 1
    count=0
    while IFS= read -r line && [ "$count" -lt "$most_lines" ]; do
        printf '%s\n' "$line"
        count=$((count + 1))
    done <"$1"
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
        printf '%s\n' "$line"
    done
    close_section "$verdict"
}

# Runs a tool for at most the limit. The left side ends at once: the shell must not wait for the tool itself.
bounded() { { supervise "$@" & } | relay; }

cpu_count() {
    # GNU nproc would report these wishes instead of the machine.
    unset OMP_NUM_THREADS OMP_THREAD_LIMIT
    nproc || getconf _NPROCESSORS_ONLN || getconf NPROCESSORS_ONLN || sysctl -n hw.ncpu ||
        grep -c '^processor' /proc/cpuinfo
}

load_average() {
    copy_file /proc/loadavg || sysctl -n vm.loadavg || uptime
}

reclaimable_bytes() {
    while read -r key value; do
        if [ "$key" = "$2" ]; then
            printf '%s' "$value"
            return
        fi
    done <"$1"
}

cgroup_memory() {
    maximum= current= inactive=
    read -r maximum <"$1/$2"
    # "max", or a number of 16 and more digits, is no limit at all.
    case $maximum in '' | *[!0-9]* | ????????????????*) return ;; esac
    [ -r "$1/$3" ] && read -r current <"$1/$3"
    [ -r "$1/memory.stat" ] && inactive=$(reclaimable_bytes "$1/memory.stat" "$4")
    printf 'memory %s %s %s\n' "$maximum" "${current:--}" "${inactive:--}"
}

cgroup_level() {
    quota= period=
    if [ -r "$1/cpu.max" ]; then
        read -r quota period <"$1/cpu.max"
    elif [ -r "$1/cpu.cfs_quota_us" ] && [ -r "$1/cpu.cfs_period_us" ]; then
        read -r quota <"$1/cpu.cfs_quota_us"
        read -r period <"$1/cpu.cfs_period_us"
    fi
    [ -z "$quota" ] || printf 'cpu %s %s\n' "$quota" "$period"
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

first_line() { [ -r "$1" ] && IFS= read -r line <"$1" && printf '%s\n' "$line"; }

section() {
    open_section "$1"
    shift
    "$@"
    close_section "$?"
}

quick_sections() {
    before=$(first_line /proc/stat)
    # Where fractions of a second are not understood this fails at once, and there is no second reading.
    sleep 0.1 >/dev/null &
    pause=$!
    section load load_average
    section count cpu_count
    section meminfo copy_file /proc/meminfo
    section cgroup cgroup_limits
    if [ ! -r /proc/meminfo ]; then
        section sysctl sysctl hw.memsize hw.physmem64 hw.physmem hw.pagesize \
            vm.stats.vm.v_free_count vm.stats.vm.v_inactive_count
        section vm_stat vm_stat
    fi
    open_section stat
    printf '%s\n' "$before"
    wait "$pause" && first_line /proc/stat
    close_section "$?"
}

disk_section() {
    [ -n "$2" ] || return
    open_section "$1"
    printf 'path %s\n' "$2"
    bounded df -kP "$2"
}

gpu_devices() {
    for entry in /dev/nvidia[0-9]* /proc/driver/nvidia/gpus/* /proc/driver/nvidia/version; do
        if [ -e "$entry" ]; then
            printf 'device yes\n'
            return
        fi
    done
    printf 'device no\n'
}

gpu_driver() {
    if command -v nvidia-smi >/dev/null; then printf 'tool yes\n'; else printf 'tool no\n'; fi
    gpu_devices
}

gpu_list() {
    open_section gpus
    bounded nvidia-smi --query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total \
        --format=csv,noheader,nounits
}

gpu_processes() {
    open_section gpu_processes
    bounded nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv,noheader,nounits
}

gpu_sections() {
    section gpu_driver gpu_driver
    command -v nvidia-smi >/dev/null || return
    gpu_processes | {
        gpu_list
        cat
    }
}

# Each stage starts its left side, does its own work meanwhile, then passes on what the left side printed:
# everything runs at the same time and no two sections mix.
slow_sections() {
    disk_section disk_tmp /tmp | {
        disk_section disk_home "$HOME" | {
            gpu_sections
            cat
        }
        cat
    }
}

main() {
    # By exec and not on the call: a shell keeps a copy of what it redirects for one call, and a process left behind
    # would hold the caller's streams open through it.
    exec </dev/null 2>/dev/null
    LC_ALL=C
    PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/nvidia/bin:/usr/lib/wsl/lib
    export LC_ALL PATH
    slow_sections | {
        quick_sections
        cat
    }
}

main; exit 0

# Prints one report about this machine: load, memory, disks, GPUs.
# POSIX sh only. No temporary file, nothing written, and only processes started here are ever signalled.
#
# Every section lies between "@@NONCE begin NAME" and "@@NONCE end VERDICT", so that what a tool prints cannot pass
# for a section. VERDICT is an exit status, "hung", "cut" (too much output) or "lost".

nonce=@NONCE@
limit=@LIMIT@
most_bytes=65536
most_lines=256
collecting= processes= noted=0

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

# Remembers the processes that a line names. Any number may be one; the reader knows which of them are meant.
note_processes() {
    words=$IFS
    IFS="$IFS,|:\"PID"
    set -f
    for word in $1; do
        case $word in '' | *[!0-9]* | ????????*) continue ;; esac
        [ "$noted" -lt "$most_lines" ] && [ -d "/proc/$word" ] || continue
        case "$processes " in *" /proc/$word "*) continue ;; esac
        processes="$processes /proc/$word"
        noted=$((noted + 1))
    done
    set +f
    IFS=$words
}

# Tells who owns the remembered processes: by number, which is certain, and by name, which may have to be asked for.
owner_sections() {
    collecting=
    [ -n "$processes" ] || return 0
    open_section "$1_owners"
    printf 'self %s\n' "$(id -u)"
    ls -ldn $processes
    close_section "$?"
    open_section "$1_names"
    bounded ls -ld $processes
}

# Runs a tool for at most the limit. The left side ends at once: the shell must not wait for the tool itself.
bounded() { { supervise "$@" & } | relay; }

# The same for a list of processes, with their owners after it.
bounded_with_owners() {
    name=$1
    shift
    { supervise "$@" & } | {
        collecting=yes processes= noted=0
        relay
        owner_sections "$name"
    }
}

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

exists() {
    for entry in "$@"; do
        [ ! -e "$entry" ] || return 0
    done
    return 1
}

yes_or_no() { if "$@" >/dev/null; then printf 'yes\n'; else printf 'no\n'; fi; }

# A graphics unit inside a processor has the same driver; only one with much memory of its own is worth a complaint.
has_amd_device() {
    [ -e /dev/kfd ] || return 1
    for file in /sys/class/drm/card*/device/mem_info_vram_total; do
        [ -r "$file" ] && read -r bytes <"$file" && [ "$bytes" -ge 8589934592 ] && return 0
    done
    return 1
}

# NVIDIA comes last: where its lines are, those of the others are too.
gpu_driver() {
    printf 'amd_tool %s\n' "$(yes_or_no amd_tools)"
    printf 'amd_device %s\n' "$(yes_or_no has_amd_device)"
    printf 'ascend_tool %s\n' "$(yes_or_no command -v npu-smi)"
    printf 'ascend_device %s\n' "$(yes_or_no exists /dev/davinci[0-9]* /dev/davinci_manager)"
    printf 'tool %s\n' "$(yes_or_no command -v nvidia-smi)"
    printf 'device %s\n' "$(yes_or_no exists /dev/nvidia[0-9]* /proc/driver/nvidia/gpus/* /proc/driver/nvidia/version)"
}

gpu_list() {
    open_section gpus
    bounded nvidia-smi --query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total \
        --format=csv,noheader,nounits
}

gpu_processes() {
    open_section gpu_processes
    bounded_with_owners nvidia nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory \
        --format=csv,noheader,nounits
}

# The plain table is the only one that tells memory and processes of the parts of a divided GPU.
gpu_instances() {
    open_section nvidia_list
    { supervise nvidia-smi -L & } | { relay && [ -n "$instances" ]; } || return 0
    open_section nvidia_table
    bounded_with_owners instances nvidia-smi
}

nvidia_sections() {
    command -v nvidia-smi >/dev/null || return 0
    gpu_instances | {
        gpu_processes | {
            gpu_list
            cat
        }
        cat
    }
}

amd_tools() { command -v amd-smi || command -v rocm-smi; }

amd_monitor() {
    open_section amd_monitor
    bounded amd-smi monitor --gfx --vram-usage --temperature --json
}

amd_static() {
    open_section amd_static
    bounded amd-smi static --asic --json
}

amd_processes() {
    open_section amd_processes
    bounded_with_owners amd amd-smi process --json
}

# Succeeds when the figures could be read.
amd_smi_sections() {
    command -v amd-smi >/dev/null || return 1
    amd_processes | {
        amd_static | {
            amd_monitor
            status=$?
            cat
            [ "$status" = 0 ]
        }
        status=$?
        cat
        [ "$status" = 0 ]
    }
}

rocm_processes() {
    open_section rocm_processes
    bounded_with_owners rocm rocm-smi --showpidgpus
}

rocm_smi_sections() {
    command -v rocm-smi >/dev/null || return 0
    rocm_processes | {
        open_section rocm
        bounded rocm-smi --showproductname --showuse --showmeminfo vram --showtemp --json
        cat
    }
}

holds_memory() {
    for file in "$1"/vram_*; do
        [ -r "$file" ] && read -r bytes <"$file" && [ "$bytes" = 0 ] || return 0
    done
    return 1
}

# All processes with memory on an AMD GPU, as the kernel knows them; the tools show a plain user only some.
kernel_processes() {
    for entry in /sys/class/kfd/kfd/proc/[0-9]*; do
        [ -d "$entry" ] && holds_memory "$entry" || continue
        printf '%s\n' "${entry##*/}"
        note_processes "${entry##*/}"
    done
}

amd_sections() {
    amd_tools >/dev/null || return 0
    section kfd kernel_processes
    owner_sections kfd
    amd_smi_sections || rocm_smi_sections
}

ascend_sections() {
    command -v npu-smi >/dev/null || return 0
    open_section ascend
    bounded_with_owners ascend npu-smi info
}

gpu_sections() {
    section gpu_driver gpu_driver
    ascend_sections | {
        amd_sections | {
            nvidia_sections
            cat
        }
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
    PATH=$PATH:/opt/rocm/bin:/usr/local/sbin
    export LC_ALL PATH
    slow_sections | {
        quick_sections
        cat
    }
}

main; exit 0

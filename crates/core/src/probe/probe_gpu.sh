# The part of the report about GPUs and who uses them. It stands before probe.sh, which has what it calls.

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

exists() {
    for entry in "$@"; do
        [ ! -e "$entry" ] || return 0
    done
    return 1
}

yes_or_no() {
    answer=no key=$1
    shift
    ! "$@" >/dev/null || answer=yes
    say "$key $answer"
}

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
    yes_or_no amd_tool [ -n "$amd" ]
    yes_or_no amd_device has_amd_device
    yes_or_no ascend_tool [ -n "$ascend" ]
    yes_or_no ascend_device exists /dev/davinci[0-9]* /dev/davinci_manager
    yes_or_no tool [ -n "$nvidia" ]
    yes_or_no device exists /dev/nvidia[0-9]* /proc/driver/nvidia/gpus/* /proc/driver/nvidia/version
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
    [ -n "$nvidia" ] || return 0
    gpu_instances | {
        gpu_processes | {
            gpu_list
            cat
        }
        cat
    }
}

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
    has_tool amd-smi || return 1
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
    has_tool rocm-smi || return 0
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
        say "${entry##*/}"
        note_processes "${entry##*/}"
    done
}

amd_sections() {
    section kfd kernel_processes
    send_report
    owner_sections kfd
    amd_smi_sections || rocm_smi_sections
}

ascend_sections() {
    open_section ascend
    bounded_with_owners ascend npu-smi info
}

# Runs the left one while the right one runs; what it printed comes last, so that no two sections mix.
beside() {
    "$1" | {
        "$2"
        cat
    }
}

amd_and_nvidia_sections() {
    if [ -n "$amd" ]; then beside amd_sections nvidia_sections; else nvidia_sections; fi
}

gpu_sections() {
    if [ -n "$ascend" ]; then beside ascend_sections amd_and_nvidia_sections; else amd_and_nvidia_sections; fi
}

has_tool() { command -v "$1" >/dev/null; }

find_tools() {
    amd= ascend= nvidia=
    ! has_tool amd-smi && ! has_tool rocm-smi || amd=yes
    ! has_tool npu-smi || ascend=yes
    ! has_tool nvidia-smi || nvidia=yes
}


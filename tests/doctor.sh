#!/usr/bin/env bash
# tally doctor on machines that are made up: files below a folder (--root), and a faked NVML (tests/softgpu/nvml). Every fault is
# called one and says what to do; what is none is not.
#
#   tests/doctor.sh TALLY          TALLY: the binary, with softgpu/ beside it
set -u
tally=$(realpath "$1") softgpu=$(dirname "$(realpath "$1")")/softgpu
[ -e "$softgpu/nvml/libnvidia-ml.so.1" ] || { echo 'SKIPPED: the faked NVML is not built (make tests)' && exit 77; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
export OMP_WAIT_POLICY=passive
unset CUDA_VISIBLE_DEVICES
failed=0

# machine NAME [pci] [nodes] [module]: a root that has these.
machine()
{
    local root=$1
    shift
    mkdir -p "$root/dev" "$root/sys/bus/pci/devices/0000:01:00.0" "$root/proc/driver/nvidia" "$root/usr/local/cuda"
    for what in "$@"; do
        case $what in
        pci) echo 0x10de >"$root/sys/bus/pci/devices/0000:01:00.0/vendor" &&
            echo 0x030200 >"$root/sys/bus/pci/devices/0000:01:00.0/class" ;;
        nodes) touch "$root/dev/nvidiactl" "$root/dev/nvidia-uvm" "$root/dev/nvidia0" ;;
        module) echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06' >"$root/proc/driver/nvidia/version" ;;
        toolkit) echo '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}' >"$root/usr/local/cuda/version.json" ;;
        esac
    done
}

# says ROOT LIBRARIES CODE LINE...: tally doctor there, with LIBRARIES in front of the system's, ends with CODE and prints lines
# that match.
says()
{
    local root=$1 libraries=$2 code=$3
    shift 3
    LD_LIBRARY_PATH=$libraries "$tally" doctor --root "$root" >said 2>&1
    local got=$?
    [ $got = "$code" ] || { failed=1 && echo "FAILED: exit code $got, not $code, for $*" && cat said; }
    for line in "$@"; do
        grep -q -- "$line" said || { failed=1 && echo "FAILED: no line '$line' in" && cat said; }
    done
}

machine none
machine naked pci
machine loaded pci module
machine whole pci nodes module toolkit
machine half pci module
touch half/dev/nvidiactl

# No GPU, and why.
says none "" 0 '^fine .*no NVIDIA GPU on the PCI bus: tally trains on the CPU' '^fine  *tally  *takes the CPU: '
says naked "" 1 '^wrong  *driver  *there is no NVIDIA driver' '-> install NVIDIA' '^wrong  *tally  *takes the CPU'
says loaded "" 1 '^wrong  *driver  *the driver.s module is loaded (NVRM.*580' '-> restart the machine'
export FAKE_NVML
FAKE_NVML=init=18 says whole "$softgpu/nvml" 1 '^wrong  *driver .*Driver/library version mismatch'
FAKE_NVML=init=9 says none "$softgpu/nvml" 0 '^fine  *driver  *there is no NVIDIA driver'
FAKE_NVML='' says loaded "$softgpu/nvml" 1 '^wrong  *device nodes .*/dev/nvidiactl (No such file' '-> in a container'
says half "$softgpu/nvml" 1 '^wrong  *device nodes  */dev/nvidia-uvm (No'
mkdir -p windows/dev && touch windows/dev/dxg
FAKE_NVML='' says windows "$softgpu/nvml" 1 '^fine  *device nodes  */dev/dxg' # CUDA is not there: only NVML is faked
CUDA_VISIBLE_DEVICES='' says whole "$softgpu/nvml" 1 "^wrong  *visible devices  *CUDA_VISIBLE_DEVICES='' hides every GPU"
CUDA_VISIBLE_DEVICES=1 says none "$softgpu/nvml" 1 "^fine  *visible devices  *CUDA_VISIBLE_DEVICES='1': only these"
[ "$(id -u)" = 0 ] || { chmod 0 whole/dev/nvidia0 && says whole "$softgpu/nvml" 1 'nvidia0 (Permission denied)' '-> give this user' &&
    chmod 600 whole/dev/nvidia0; }

if [ ! -e "$softgpu/libcudart.so.13" ]; then
    FAKE_NVML='' says whole "$softgpu/nvml" 1 '^wrong  *build  *tally is built without CUDA'
    exit $failed
fi

# A GPU: each reading in the light of what it means.
gpu=$softgpu:$softgpu/nvml
FAKE_NVML='' says whole "$gpu" 0 '^fine  *driver  *580.65.06, for CUDA up to 13.0, with 1 GPU$' '^fine  *toolkit  *CUDA 12.4.1' \
    '40.00 GiB (42.95 GB)' 'ECC on' 'held back by: nothing' '^fine  *tally  *takes the GPU (Software A100' \
    'tensor cores multiply FP16, BF16 and TF32; FP8'
FAKE_NVML=cuda=12080 says whole "$gpu" 1 '^wrong  *driver .*CUDA up to 12.8, and this build is made with 13.' '-> update the driver'
FAKE_NVML=cuda=13990 says whole "$gpu" 0 '^fine  *driver .*for CUDA up to 13.99'
FAKE_NVML=capability=89 says whole "$gpu" 0 'and FP8 (which'
FAKE_NVML=capability=75 says whole "$gpu" 0 'multiply FP16 alone; BF16'
FAKE_NVML=capability=61 says whole "$gpu" 0 'multiply nothing'
FAKE_NVML=ecc=0 says whole "$gpu" 0 'ECC off'
FAKE_NVML=ecc=none says whole "$gpu" 0 'no ECC'
FAKE_NVML=generation=1,busy=0,throttle=1 says whole "$gpu" 0 '^fine  *link .*generation 1 x16; at most 4 x16: an idle GPU lowers it'
FAKE_NVML=generation=1 says whole "$gpu" 0 '^look  *link .*generation 1 x16; at most 4 x16$' '-> look at it again while'
FAKE_NVML=width=4 says whole "$gpu" 0 '^look  *link .*4 x4; at most 4 x16' '-> try another slot'
FAKE_NVML=generation=none says whole "$gpu" 0 '^fine  *link  *cannot be read'
FAKE_NVML=throttle=4 says whole "$gpu" 0 '^fine  *clocks .*held back by: power cap'
FAKE_NVML=throttle=0x48 says whole "$gpu" 0 '^look  *clocks .*hardware slowdown, heat (hardware)' '-> look at cooling'
FAKE_NVML=limit=200000 says whole "$gpu" 0 '^look  *power .*the limit is 200 W, and 400 W' '-> nvidia-smi -pl'
FAKE_NVML=other_bytes=30000000000 says whole "$gpu" 0 '^look  *memory ' '-> nvidia-smi lists'
FAKE_NVML=fail=nvmlDeviceGetHandleByIndex_v2 says whole "$gpu" 1 '^wrong  *GPU 0 .*does not answer'
FAKE_NVML=fail=nvmlDeviceGetMemoryInfo says whole "$gpu" 0 '^look  *memory  *its size cannot be read'
SOFTGPU_CAPABILITY=75 FAKE_NVML='' says whole "$gpu" 1 '^wrong  *tally  *takes the CPU: this build has no code for .*sm_75'
SOFTGPU_CARD=none FAKE_NVML='' says whole "$gpu" 1 '^wrong  *tally  *takes the CPU: the NVIDIA driver sees no GPU'

FAKE_NVML='' LD_LIBRARY_PATH=$gpu "$tally" doctor --root whole --json >said || failed=1
for part in '"device": "cuda"' '"wrong": 0' '"verdict": "fine"' '"advice": null'; do
    grep -q -- "$part" said || { failed=1 && echo "FAILED: no $part in the JSON"; }
done
"$tally" doctor --nonsense >said 2>&1
[ $? = 2 ] || { failed=1 && echo 'FAILED: an unknown flag is not refused with exit code 2'; }
exit $failed

# For scripts that need the software GPU (tests/softgpu/README.md), whatever the machine has; to be sourced in the folder of the sources,
# with the binary as $1 or $TALLY. Sets $softgpu, the folder of its libraries beside the binary, and has programs load those; ends
# the script with 77, "skipped", where they are not built.
# shellcheck shell=bash
softgpu=$(dirname "$(realpath "${TALLY:-$1}")")/softgpu
[ -e "$softgpu/libcudart.so.13" ] || { echo 'SKIPPED: there is no software GPU here; it needs nvcc 13' && exit 77; }
export LD_LIBRARY_PATH=$softgpu OMP_WAIT_POLICY=passive # OpenMP's threads must not spin: the software GPU's need the cores

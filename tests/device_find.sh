# For scripts that test a device; to be sourced in the folder of the sources, with the binary as $1 or $TALLY. The device is TALLY_TEST_DEVICE,
# cuda by default; where there is no GPU, that is the one made of software beside the binary, and without it the script ends with 77,
# "skipped". Sets $device, and $precisions: those that the device has.
# shellcheck shell=bash
# shellcheck disable=SC2034
device=${TALLY_TEST_DEVICE:-cuda} precisions='fp32 tf32 bf16 fp16'
case $device in
cpu) precisions=${precisions/tf32 /} ;;
*)
    if [ ! -e /dev/nvidiactl ]; then
        LD_LIBRARY_PATH=$(dirname "$(realpath "${TALLY:-$1}")")/softgpu
        export LD_LIBRARY_PATH
        [ -e "$LD_LIBRARY_PATH/libcudart.so.13" ] || { echo 'SKIPPED: there is no software GPU here; it needs nvcc 13' && exit 77; }
    fi
    ;;
esac
export OMP_WAIT_POLICY=passive # OpenMP's threads must not spin: the software GPU's need the cores

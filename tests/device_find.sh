# For scripts that test a device; to be sourced in the folder of the sources, with the binary as $1 or $TALLY. The device is TALLY_TEST_DEVICE,
# cuda by default; where there is no GPU, that is the software one (tests/softgpu_find.sh). Sets $device, and $precisions: those that
# the device has.
# shellcheck shell=bash
# shellcheck disable=SC2034
device=${TALLY_TEST_DEVICE:-cuda} precisions='fp32 tf32 bf16 fp16'
if [ "$device" = cpu ]; then
    precisions=${precisions/tf32 /}
elif [ ! -e /dev/nvidiactl ]; then
    . tests/softgpu_find.sh
fi

/* HOST_DEVICE marks an inline function that GPU code may call as well: nothing to a C compiler. */
#ifndef TALLY_BASE_HOST_DEVICE_H
#define TALLY_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif

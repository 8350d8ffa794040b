/* A double of a vendor's driver library: DEVICES devices, INIT and COUNT are the statuses it answers. */
#ifndef NO_INIT
int cuInit(unsigned flags) { return flags == 0 ? INIT : 1; }
int hipInit(unsigned flags) { return flags == 0 ? INIT : 1; }
#endif
int cuDeviceGetCount(int *count) { return *count = DEVICES, COUNT; }
int hipGetDeviceCount(int *count) { return *count = DEVICES, COUNT; }

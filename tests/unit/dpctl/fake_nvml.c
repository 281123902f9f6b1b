// SPDX-License-Identifier: Apache-2.0
//
// A fake libnvidia-ml with three GPUs: one in MIG mode with two instances, and one that may not be used.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6 };

struct device {
    const char* uuid;
    unsigned minor, gi, ci;
    int is_instance;
};
// By index, which is not the minor number.
static struct device gpus[] = {{"GPU-b", 1, 0, 0, 0}, {"GPU-mig", 0, 0, 0, 0}, {"GPU-c", 2, 0, 0, 0}};
static struct device instances[] = {{"MIG-2-0", 0, 2, 0, 1}, {"MIG-1-0", 0, 1, 0, 1}};

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char* nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned* count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device** device);
int nvmlDeviceGetMinorNumber(struct device* device, unsigned* minor);
int nvmlDeviceGetUUID(struct device* device, char* uuid, unsigned size);
int nvmlDeviceGetMaxMigDeviceCount(struct device* device, unsigned* count);
int nvmlDeviceGetMigDeviceHandleByIndex(struct device* gpu, unsigned index, struct device** device);
int nvmlDeviceGetGpuInstanceId(struct device* device, unsigned* id);
int nvmlDeviceGetComputeInstanceId(struct device* device, unsigned* id);
int nvmlDeviceGetUtilizationRates(struct device* device, unsigned rates[2]);
int nvmlDeviceGetMemoryInfo(struct device* device, unsigned long long memory[3]);

#ifdef FAKE_NVML_WITHOUT_DRIVER
int nvmlInit_v2(void) {
    return 9;
}
#else
int nvmlInit_v2(void) {
    return SUCCESS;
}
#endif

int nvmlShutdown(void) {
    return SUCCESS;
}

const char* nvmlErrorString(int result) {
    return result == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 3;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device** device) {
    if (index == 2) return NO_PERMISSION;
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(struct device* device, unsigned* minor) {
    *minor = device->minor;
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct device* device, char* uuid, unsigned size) {
    if (strlen(device->uuid) >= size) return INVALID;
    snprintf(uuid, size, "%s", device->uuid);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device* device, unsigned* count) {
    if (device != &gpus[1]) return NOT_SUPPORTED;
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device* gpu, unsigned index, struct device** device) {
    if (gpu != &gpus[1] || index > 1) return NOT_FOUND;
    *device = &instances[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(struct device* device, unsigned* id) {
    *id = device->gi;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(struct device* device, unsigned* id) {
    *id = device->ci;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct device* device, unsigned rates[2]) {
    if (device->is_instance) return NOT_SUPPORTED;
    rates[0] = 87;
    rates[1] = 12;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct device* device, unsigned long long memory[3]) {
    memory[0] = device->is_instance ? 18ULL << 30 : 141ULL << 30;
    memory[1] = memory[0] - (5ULL << 30);
    memory[2] = 5ULL << 30;
    return SUCCESS;
}

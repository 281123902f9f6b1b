// SPDX-License-Identifier: Apache-2.0
//
// A fake libnvidia-ml with three GPUs: one in MIG mode with two instances, and one that may not be used.
// FAKE_NVML_LOST=INDEX: that GPU has fallen off its bus.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, GPU_IS_LOST = 15 };

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
    return result == 9 ? "Driver Not Loaded" : result == GPU_IS_LOST ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 3;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device** device) {
    const char* lost = getenv("FAKE_NVML_LOST");
    if (lost != NULL && index == (unsigned)atoi(lost)) return GPU_IS_LOST;
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

struct pci {
    char old_address[16];
    unsigned domain, bus, device, kind, board;
    char address[32];
};
int nvmlDeviceGetPciInfo_v3(struct device* device, struct pci* where);

int nvmlDeviceGetPciInfo_v3(struct device* device, struct pci* where) {
    memset(where, 0, sizeof *where);
    where->bus = 0x17 + device->minor;
    snprintf(where->address, sizeof where->address, "00000000:%02X:00.0", where->bus);
    return SUCCESS;
}

// GPU 0 computes for two processes, at two thirds of its clock.
struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(struct device* device, unsigned* count,
                                            struct process* processes);
int nvmlDeviceGetClockInfo(struct device* device, int clock, unsigned* megahertz);
int nvmlDeviceGetMaxClockInfo(struct device* device, int clock, unsigned* megahertz);

int nvmlDeviceGetComputeRunningProcesses_v3(struct device* device, unsigned* count,
                                            struct process* processes) {
    if (device->is_instance) return NOT_SUPPORTED;
    if (*count < 2) return INVALID;
    processes[0].pid = 4711;
    processes[1].pid = 4712;
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(struct device* device, int clock, unsigned* megahertz) {
    (void)device;
    *megahertz = 1320;
    return clock == 1 ? SUCCESS : INVALID;
}

int nvmlDeviceGetMaxClockInfo(struct device* device, int clock, unsigned* megahertz) {
    (void)device;
    *megahertz = 1980;
    return clock == 1 ? SUCCESS : INVALID;
}

int nvmlDeviceGetPowerUsage(struct device* device, unsigned* milliwatts);

int nvmlDeviceGetPowerUsage(struct device* device, unsigned* milliwatts) {
    (void)device;
    *milliwatts = 610500;
    return SUCCESS;
}

// For the doctor: GPU 0 has one NVLink that is down, and GPU 1 is hot and must be reset.
int nvmlSystemGetDriverVersion(char* version, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int* version);
int nvmlDeviceGetName(struct device* device, char* name, unsigned size);
int nvmlDeviceGetTotalEccErrors(struct device* device, int kind, int counter, unsigned long long* count);
int nvmlDeviceGetRemappedRows(struct device* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device* device, unsigned long long* reasons);
int nvmlDeviceGetTemperature(struct device* device, int sensor, unsigned* degrees);
int nvmlDeviceGetCurrPcieLinkWidth(struct device* device, unsigned* width);
int nvmlDeviceGetMaxPcieLinkWidth(struct device* device, unsigned* width);
int nvmlDeviceGetNvLinkState(struct device* device, unsigned link, int* active);
int nvmlDeviceGetGpuFabricInfo(struct device* device, void* info);
int nvmlDeviceGetPersistenceMode(struct device* device, int* mode);
int nvmlDeviceGetMigMode(struct device* device, unsigned* now, unsigned* next);
int nvmlDeviceGetP2PStatus(struct device* one, struct device* other, int index, int* status);

int nvmlSystemGetDriverVersion(char* version, unsigned size) {
    snprintf(version, size, "580.65.06");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = 13000;
    return SUCCESS;
}

int nvmlDeviceGetName(struct device* device, char* name, unsigned size) {
    (void)device;
    snprintf(name, size, "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(struct device* device, int kind, int counter, unsigned long long* count) {
    if (kind != 1 || counter != 0) return INVALID;
    *count = device == &gpus[0] ? 0 : 5;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(struct device* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
    *corrected = *uncorrected = *failed = 0;
    *pending = device == &gpus[1];
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device* device, unsigned long long* reasons) {
    *reasons = device == &gpus[1] ? 0x40 : 0x4;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(struct device* device, int sensor, unsigned* degrees) {
    (void)device;
    if (sensor != 0) return INVALID;
    *degrees = 41;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(struct device* device, unsigned* width) {
    (void)device;
    *width = 16;
    return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkWidth(struct device* device, unsigned* width) {
    return nvmlDeviceGetCurrPcieLinkWidth(device, width);
}

int nvmlDeviceGetNvLinkState(struct device* device, unsigned link, int* active) {
    if (link > 17) return INVALID;
    *active = device != &gpus[0] || link != 3;
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(struct device* device, void* info) {
    (void)device;
    ((unsigned char*)info)[24] = 3;  // nvmlGpuFabricInfo_t.state: COMPLETED
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(struct device* device, int* mode) {
    *mode = device == &gpus[0];
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct device* device, unsigned* now, unsigned* next) {
    *now = *next = device == &gpus[1];
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct device* one, struct device* other, int index, int* status) {
    (void)one, (void)other;
    *status = index == 0;
    return SUCCESS;
}

// SPDX-License-Identifier: Apache-2.0
//
// A fake libcuda: the first GPU works, the second one makes a mistake, the third one has no memory left, and the fourth one is too old for
// bf16. A kernel does nothing but leave its results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100 };

static _Thread_local long current;

int cuInit(unsigned flags);
int cuDeviceGetCount(int* count);
int cuDeviceGet(int* device, int number);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetPCIBusId(char* id, int size, int device);
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuCtxSynchronize(void);
int cuModuleLoadData(void** module, const char* text);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuMemAlloc_v2(unsigned long long* pointer, size_t size);
int cuMemFree_v2(unsigned long long pointer);
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t size);
int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t size);
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned thread_y,
                   unsigned thread_z, unsigned shared, void* stream, void** parameters, void** extra);
int cuGetErrorName(int error, const char** name);

int cuInit(unsigned flags) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && strcmp(visible, "crash") == 0) abort();
    return flags == 0 ? SUCCESS : 1;
}

// As many as CUDA_VISIBLE_DEVICES has before one that is not there, 9.
int cuDeviceGetCount(int* count) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible && *visible ? 1 : 0;
    for (; visible && *visible && strncmp(visible, ",9", 2) != 0; ++visible) *count += *visible == ',';
    return *count > 0 ? SUCCESS : NO_DEVICE;
}

int cuDeviceGet(int* device, int number) {
    *device = number;
    return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 16 ? 2 : device == 3 ? 7 : 9;
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char* id, int size, int device) {
    snprintf(id, (size_t)size, "0000:%d0:00.0", device + 1);
    return SUCCESS;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    (void)device;
    return flags == 4 ? SUCCESS : 1;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = (void*)(size_t)(device + 1);
    return SUCCESS;
}

int cuCtxSetCurrent(void* context) {
    current = (long)(size_t)context - 1;
    return SUCCESS;
}

int cuCtxSynchronize(void) {
    usleep(1000);
    return SUCCESS;
}

int cuModuleLoadData(void** module, const char* text) {
    *module = NULL;
    return strstr(text, ".target sm_80") ? SUCCESS : 218;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = module;
    return strcmp(name, "dp_multiply") == 0 ? SUCCESS : 500;
}

int cuMemAlloc_v2(unsigned long long* pointer, size_t size) {
    *pointer = current == 2 ? 0 : (unsigned long long)(size_t)malloc(size);
    return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long pointer) {
    free((void*)(size_t)pointer);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t size) {
    memcpy(to, (void*)(size_t)from, size);
    return SUCCESS;
}

int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t size) {
    return to && from && size ? SUCCESS : 1;
}

int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned thread_y,
                   unsigned thread_z, unsigned shared, void* stream, void** parameters, void** extra) {
    (void)function, (void)y, (void)z, (void)thread_y, (void)thread_z, (void)shared, (void)stream, (void)extra;
    float* results = (float*)(size_t) * (unsigned long long*)parameters[0];
    const unsigned rounds = *(unsigned*)parameters[1];
    for (unsigned i = 0; i < x * threads; ++i) results[i] = 512.0F * (float)rounds;
    if (current == 1) results[7] += 1;
    return SUCCESS;
}

int cuGetErrorName(int error, const char** name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

/* A HIP runtime that has two GPUs, remembers what it was asked and executes nothing. Built as the
 * library of HIP 5, as that of HIP 7, and as one that lacks most of it: FAKE_HIP_MAJOR is 5, 7, 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* What tests read and set. */
API char fake_hip_calls[4096];
API const char* fake_hip_failing; /* the function that fails next, with */
API int fake_hip_error;
API int fake_hip_last_error;
API uint64_t fake_hip_args[4]; /* the first 8 bytes of the last launch's arguments */
API unsigned fake_hip_num_args;

static int called(const char* function) {
  const size_t used = strlen(fake_hip_calls);
  snprintf(fake_hip_calls + used, sizeof fake_hip_calls - used, "%s ", function);
  if (fake_hip_failing == NULL || strcmp(fake_hip_failing, function) != 0) return 0;
  fake_hip_failing = NULL;
  fake_hip_last_error = fake_hip_error;
  return fake_hip_error;
}

API int hipInit(unsigned flags) {
  return called("hipInit") + (int)flags;
}

#if FAKE_HIP_MAJOR != 0

static __thread int current;

API const char* hipGetErrorName(int error) {
  if (error == 700) return "hipErrorIllegalAddress";
  return error == 209 ? "hipErrorNoBinaryForGpu" : "hipErrorOfTheFake";
}
API const char* hipGetErrorString(int error) {
  return error == 700 ? "an illegal memory access was encountered" : "a text of the fake";
}
API int hipGetLastError(void) {
  const int last = fake_hip_last_error;
  fake_hip_last_error = 0;
  return last;
}
API int hipGetDeviceCount(int* count) {
  *count = 2;
  return 0;
}
API int hipGetDevice(int* device) {
  *device = current;
  return called("hipGetDevice");
}
API int hipSetDevice(int device) {
  const int result = called("hipSetDevice");
  if (result == 0) current = device;
  return result;
}

API int hipDeviceGetAttribute(int* value, int attribute, int device) {
  const int result = called("hipDeviceGetAttribute");
  if (result != 0) return result;
  if (device < 0 || device > 1) return fake_hip_last_error = 101;
  switch (attribute) {
    case 19:
      *value = 8 << 20;
      return 0;
    case 56:
      *value = 1024;
      return 0;
    case 63:
      *value = device == 0 ? 104 : 40;
      return 0;
    case 74:
      *value = 65536;
      return 0;
    case 87:
      *value = device == 0 ? 64 : 32;
      return 0;
    case 88:
      if (FAKE_HIP_MAJOR < 6) return fake_hip_last_error = 1;
      *value = 1;
      return 0;
    default:
      return fake_hip_last_error = 1;
  }
}
API int hipDeviceTotalMem(size_t* bytes, int device) {
  *bytes = (size_t)(64 >> device) << 30;
  return 0;
}

/* The layouts of HIP 5 and of HIP 6 and 7: the target ID behind other things, and the whole. */
static int put_properties(char* properties, size_t at, size_t size, int device) {
  memset(properties, 0x5a, size);
  strcpy(properties + at, device == 0 ? "gfx90a:sramecc+:xnack-" : "gfx1030");
  return called("hipGetDeviceProperties");
}
API int hipGetDeviceProperties(void* properties, int device) {
  return put_properties(properties, 396, 792, device);
}
#if FAKE_HIP_MAJOR >= 6
API int hipGetDevicePropertiesR0600(void* properties, int device) {
  return put_properties(properties, 1160, 1472, device);
}
/* A stream is a pointer to its device's number. */
API int hipStreamGetDevice(void* stream, int* device) {
  *device = *(int*)stream;
  return called("hipStreamGetDevice");
}
API int hipMallocAsync(void** out, size_t bytes, void* stream) {
  (void)stream;
  *out = malloc(bytes);
  return called("hipMallocAsync");
}
API int hipFreeAsync(void* memory, void* stream) {
  (void)stream;
  free(memory);
  return called("hipFreeAsync");
}
#endif
API int hipStreamIsCapturing(void* stream, int* out) {
  *out = *(int*)stream == 1;
  return called("hipStreamIsCapturing");
}
API int hipStreamSynchronize(void* stream) {
  (void)stream;
  return called("hipStreamSynchronize");
}
API int hipModuleLoadData(void** module, const void* image) {
  *module = (void*)(uintptr_t)image;
  return called("hipModuleLoadData");
}
API int hipModuleGetFunction(void** function, void* module, const char* name) {
  const int result = called("hipModuleGetFunction");
  *function = module;
  return result != 0 ? result : strcmp(name, "scale") == 0 ? 0 : 500;
}
static int launched(const char* function, unsigned grid, unsigned block, void** args) {
  char text[64];
  for (unsigned i = 0; i < fake_hip_num_args && i < 4; ++i) memcpy(&fake_hip_args[i], args[i], 8);
  const int result = called(function);
  snprintf(text, sizeof text, "%ux%u@%d", grid, block, current);
  called(text);
  return result;
}
API int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, void* stream, void** args,
                              void** extra) {
  (void)function, (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
  return launched("hipModuleLaunchKernel", gx, bx, args);
}
#if FAKE_HIP_MAJOR >= 6
API int hipModuleLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                         unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                         void* stream, void** args) {
  (void)function, (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)stream;
  return launched("hipModuleLaunchCooperativeKernel", gx, bx, args);
}
#endif
API int hipMalloc(void** out, size_t bytes) {
  *out = malloc(bytes);
  return called("hipMalloc");
}
API int hipFree(void* memory) {
  free(memory);
  return called("hipFree");
}

#endif

// HIP's result codes: their names and texts, and each thread's last failure.
// SPDX-License-Identifier: Apache-2.0
#include "hip.h"
#include "reason.h"

using namespace softgpu;

namespace {

struct ErrorName {
  Result code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "invalid argument"},
    {2, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {98, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
    {500, "hipErrorNotFound", "named symbol not found"},
    {600, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {719, "hipErrorLaunchFailure", "unspecified launch failure"},
    {720, "hipErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "hipErrorNotSupported", "operation not supported"},
    {900, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {902, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {903, "hipErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {905, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {906, "hipErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {999, "hipErrorUnknown", "unknown error"},
};

const ErrorName& find_error(Result code) {
  for (const ErrorName& error : kErrors) {
    if (error.code == code) return error;
  }
  return kErrors[std::size(kErrors) - 1];
}

Result& last_error() {
  thread_local Result error = kSuccess;
  return error;
}

}  // namespace

// HIP has no code for a misaligned address, for a call that host functions of streams must not
// make, or for an invalid cluster size.
Result softgpu::hip::remember(Result result) {
  if (result == kMisalignedAddress) result = kLaunchFailed;
  if (result == kNotPermitted) result = kNotSupported;
  if (result == kInvalidClusterSize) result = kInvalidValue;
  if (result != kSuccess && result != kNotReady) last_error() = result;
  return result;
}

SOFTGPU_API const char* hipGetErrorName(Result code) {
  return find_error(code).name;
}

SOFTGPU_API const char* hipGetErrorString(Result code) {
  return explained(code, find_error(code).text);
}

SOFTGPU_API Result hipDrvGetErrorName(Result code, const char** name) {
  *name = find_error(code).name;
  return find_error(code).code == code ? kSuccess : kInvalidValue;
}

SOFTGPU_API Result hipDrvGetErrorString(Result code, const char** text) {
  *text = explained(code, find_error(code).text);
  return find_error(code).code == code ? kSuccess : kInvalidValue;
}

SOFTGPU_API Result hipGetLastError() {
  const Result error = last_error();
  last_error() = kSuccess;
  return error;
}

SOFTGPU_API Result hipPeekAtLastError() {
  return last_error();
}

// CUDA's events.
// SPDX-License-Identifier: Apache-2.0
#include "cuda.h"
#include "event.h"

using namespace softgpu;

SOFTGPU_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  constexpr unsigned kDisableTiming = 2;
  CUcontext context = nullptr;
  if (const CUresult error = enter_with_context("cuEventCreate", &context)) return error;
  const Lock lock = lock_state();
  *event = make_event(context, (flags & kDisableTiming) == 0);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuEventDestroy_v2(CUevent event) {
  if (const CUresult error = enter("cuEventDestroy_v2")) return error;
  const Lock lock = lock_state();
  return destroy_event(event);
}

SOFTGPU_API CUresult cuEventRecord(CUevent event, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuEventRecord", handle, &stream)) return error;
  const Lock lock = lock_state();
  return record_event(event, stream.get());
}

SOFTGPU_API CUresult cuEventQuery(CUevent event) {
  if (const CUresult error = enter("cuEventQuery")) return error;
  const Lock lock = lock_state();
  return query_event(event);
}

SOFTGPU_API CUresult cuEventSynchronize(CUevent event) {
  if (const CUresult error = enter("cuEventSynchronize")) return error;
  Lock lock = lock_state();
  return synchronize_event(&lock, event);
}

SOFTGPU_API CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  if (const CUresult error = enter("cuEventElapsedTime")) return error;
  const Lock lock = lock_state();
  return elapsed_time(milliseconds, from, to);
}

SOFTGPU_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  return cuEventElapsedTime(milliseconds, from, to);
}

SOFTGPU_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = enter_with_stream("cuStreamWaitEvent", handle, &stream)) return error;
  const Lock lock = lock_state();
  return wait_event(stream.get(), event);
}

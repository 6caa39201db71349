// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <array>
#include <cstring>
#include <utility>

#include "direct.h"
#include "state.h"

namespace opdock::torch {

namespace {

struct Dtypes {
  static constexpr size_t kNumbers = 64;  // torch 2.13 has 46
  std::array<opdock_dtype, kNumbers> of_torch{};
  std::array<bool, kNumbers> known{};
  std::array<std::pair<opdock_dtype, int32_t>, 32> all{};
  size_t count = 0;

  void add(int32_t number, uint8_t code, uint8_t bits, uint16_t lanes = 1) {
    if (number < 0 || number >= static_cast<int32_t>(kNumbers)) return;
    of_torch[static_cast<size_t>(number)] = {code, bits, lanes};
    known[static_cast<size_t>(number)] = true;
    all[count++] = {{code, bits, lanes}, number};
  }

  Dtypes() {
    add(aoti_torch_dtype_float32(), OPDOCK_DTYPE_FLOAT, 32);
    add(aoti_torch_dtype_bfloat16(), OPDOCK_DTYPE_BFLOAT, 16);
    add(aoti_torch_dtype_float16(), OPDOCK_DTYPE_FLOAT, 16);
    add(aoti_torch_dtype_float64(), OPDOCK_DTYPE_FLOAT, 64);
    add(aoti_torch_dtype_int64(), OPDOCK_DTYPE_INT, 64);
    add(aoti_torch_dtype_int32(), OPDOCK_DTYPE_INT, 32);
    add(aoti_torch_dtype_int16(), OPDOCK_DTYPE_INT, 16);
    add(aoti_torch_dtype_int8(), OPDOCK_DTYPE_INT, 8);
    add(aoti_torch_dtype_uint8(), OPDOCK_DTYPE_UINT, 8);
    add(aoti_torch_dtype_uint16(), OPDOCK_DTYPE_UINT, 16);
    add(aoti_torch_dtype_uint32(), OPDOCK_DTYPE_UINT, 32);
    add(aoti_torch_dtype_uint64(), OPDOCK_DTYPE_UINT, 64);
    add(aoti_torch_dtype_bool(), OPDOCK_DTYPE_BOOL, 8);
    add(aoti_torch_dtype_complex32(), OPDOCK_DTYPE_COMPLEX, 32);
    add(aoti_torch_dtype_complex64(), OPDOCK_DTYPE_COMPLEX, 64);
    add(aoti_torch_dtype_complex128(), OPDOCK_DTYPE_COMPLEX, 128);
    add(aoti_torch_dtype_float8_e5m2(), OPDOCK_DTYPE_FLOAT8_E5M2, 8);
    add(aoti_torch_dtype_float8_e5m2fnuz(), OPDOCK_DTYPE_FLOAT8_E5M2FNUZ, 8);
    add(aoti_torch_dtype_float8_e4m3fn(), OPDOCK_DTYPE_FLOAT8_E4M3FN, 8);
    add(aoti_torch_dtype_float8_e4m3fnuz(), OPDOCK_DTYPE_FLOAT8_E4M3FNUZ, 8);
    add(torch_dtype_float8_e8m0fnu(), OPDOCK_DTYPE_FLOAT8_E8M0FNU, 8);
    add(torch_dtype_float4_e2m1fn_x2(), OPDOCK_DTYPE_FLOAT4_E2M1FN, 4, 2);
  }
};

const Dtypes& dtypes() {
  static const Dtypes table;
  return table;
}

int32_t cpu_type() {
  static const int32_t type = aoti_torch_device_type_cpu();
  return type;
}

int32_t cuda_type() {
  static const int32_t type = aoti_torch_device_type_cuda();
  return type;
}

// Fills in the strides of a contiguous tensor.
void set_strides(const opdock_output& output, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = output.ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    // If one size is 0, the others may have any value and the product may overflow; strides do not
    // matter then.
    if (__builtin_mul_overflow(stride, output.shape[i] > 1 ? output.shape[i] : 1, &stride))
      stride = 1;
  }
}

// Allocates more memory than the result needs, and returns a tensor of the aligned part of it,
// which frees the whole.
AtenTensorHandle allocate_aligned(const opdock_output& output, const int64_t* strides,
                                  int32_t dtype, int32_t type, int32_t index) {
  int64_t bytes = (output.dtype.bits * output.dtype.lanes + 7) / 8;
  for (int32_t i = 0; i < output.ndim; ++i) bytes *= output.shape[i];
  const int64_t one = 1;
  if (__builtin_add_overflow(bytes, static_cast<int64_t>(output.alignment), &bytes)) return nullptr;
  AtenTensorHandle whole = nullptr;
  void* data = nullptr;
  if (aoti_torch_empty_strided(1, &bytes, &one, aoti_torch_dtype_uint8(), type, index, &whole) != 0)
    return nullptr;
  AtenTensorHandle made = nullptr;
  if (torch_get_mutable_data_ptr(whole, &data) == 0) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(data) + output.alignment - 1;
    const auto release = [](void*, void* context) {
      aoti_torch_delete_tensor_object(static_cast<AtenTensorHandle>(context));
    };
    if (torch_from_blob(reinterpret_cast<void*>(first - first % output.alignment), output.ndim,
                        output.shape, strides, 0, dtype, type, index, &made,
                        aoti_torch_layout_strided(), nullptr, 0, release, whole) != 0)
      made = nullptr;
  }
  if (made == nullptr) aoti_torch_delete_tensor_object(whole);
  return made;
}

// Alignment of memory that torch allocates, on any device.
constexpr uint64_t kTorchAlignment = 64;

}  // namespace

bool to_dtype(int32_t number, opdock_dtype* out) {
  const Dtypes& table = dtypes();
  const auto place = static_cast<size_t>(number);
  if (number < 0 || place >= Dtypes::kNumbers || !table.known[place]) return false;
  *out = table.of_torch[place];
  return true;
}

int32_t from_dtype(opdock_dtype dtype) {
  const Dtypes& table = dtypes();
  for (size_t i = 0; i < table.count; ++i) {
    if (std::memcmp(&table.all[i].first, &dtype, sizeof dtype) == 0) return table.all[i].second;
  }
  return -1;
}

opdock_device to_device(int32_t type, int32_t index) {
  if (type == cpu_type()) return {OPDOCK_CPU, 0};
  if (type == cuda_type()) return {gpu_functions().is_rocm ? OPDOCK_ROCM : OPDOCK_CUDA, index};
  return {0, index};
}

bool to_tensor(AtenTensorHandle handle, bool written, opdock_tensor* out) {
  int64_t ndim = 0;
  int32_t dtype = -1;
  int32_t type = -1;
  int32_t index = 0;
  const void* data = nullptr;
  void* writable = nullptr;
  const bool ok =
      aoti_torch_get_dim(handle, &ndim) == 0 && aoti_torch_get_sizes(handle, &out->shape) == 0 &&
      aoti_torch_get_strides(handle, &out->strides) == 0 &&
      aoti_torch_get_dtype(handle, &dtype) == 0 && aoti_torch_get_device_type(handle, &type) == 0 &&
      (type == cpu_type() || aoti_torch_get_device_index(handle, &index) == 0) &&
      (written ? torch_get_mutable_data_ptr(handle, &writable)
               : torch_get_const_data_ptr(handle, &data)) == 0;
  if (!ok || ndim > OPDOCK_MAX_NDIM || !to_dtype(dtype, &out->dtype)) return false;
  out->data = written ? writable : const_cast<void*>(data);
  out->device = to_device(type, index);
  out->ndim = static_cast<int32_t>(ndim);
  out->byte_offset = 0;
  return out->device.type != 0;
}

bool allocate(const opdock_output& output, opdock_device device, AtenTensorHandle* handle,
              opdock_tensor* tensor) {
  const int32_t dtype = from_dtype(output.dtype);
  if (dtype < 0) return false;
  if (direct != nullptr && output.alignment <= kTorchAlignment) {
    *handle = direct->allocate(output, dtype, device, tensor);
    if (*handle != nullptr) return true;
  }
  int64_t strides[OPDOCK_MAX_NDIM];
  set_strides(output, strides);
  const bool on_cpu = device.type == OPDOCK_CPU;
  const int32_t type = on_cpu ? cpu_type() : cuda_type();
  const int32_t index = on_cpu ? -1 : device.index;
  AtenTensorHandle made = nullptr;
  if (output.alignment > kTorchAlignment) {
    made = allocate_aligned(output, strides, dtype, type, index);
  } else if (aoti_torch_empty_strided(output.ndim, output.shape, strides, dtype, type, index,
                                      &made) != 0) {
    made = nullptr;
  }
  if (made == nullptr) return false;
  *tensor = {nullptr, device, output.ndim, output.dtype, nullptr, nullptr, 0};
  if (aoti_torch_get_sizes(made, &tensor->shape) != 0 ||
      aoti_torch_get_strides(made, &tensor->strides) != 0 ||
      torch_get_mutable_data_ptr(made, &tensor->data) != 0) {
    aoti_torch_delete_tensor_object(made);
    return false;
  }
  *handle = made;
  return true;
}

}  // namespace opdock::torch

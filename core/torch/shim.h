// The functions of libtorch's stable C interface that Opdock calls, declared here so that building
// the library needs no torch. A test compares them with torch's own headers. They are the same from
// torch 2.11 on; "new" and "owned" say who frees a handle.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
struct StableListOpaque;
using StableListHandle = StableListOpaque*;
struct StringOpaque;
using StringHandle = StringOpaque*;
class TorchLibraryOpaque;
using TorchLibraryHandle = TorchLibraryOpaque*;
using AOTITorchError = int32_t;  // 0: success
// An argument or a result of an operator: a number's bits, an owned handle, or for an optional type
// NULL or an owned address of one of these.
using StableIValue = uint64_t;

uint64_t aoti_torch_abi_version();

int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_layout_strided();

int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_uint16();
int32_t aoti_torch_dtype_uint32();
int32_t aoti_torch_dtype_uint64();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_complex32();
int32_t aoti_torch_dtype_complex64();
int32_t aoti_torch_dtype_complex128();
int32_t aoti_torch_dtype_float8_e5m2();
int32_t aoti_torch_dtype_float8_e5m2fnuz();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e4m3fnuz();
int32_t torch_dtype_float8_e8m0fnu();
int32_t torch_dtype_float4_e2m1fn_x2();

AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** ret_sizes);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** ret_strides);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* ret_dtype);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* ret_device_type);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* ret_device_index);
// The data of a tensor that is written, and of one that is only read: the first one ends the
// sharing of a tensor that is copied on write.
AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void** ret_data_ptr);
AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void** ret_data_ptr);
AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool* ret_is_defined);
AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes_ptr,
                                        const int64_t* strides_ptr, int32_t dtype,
                                        int32_t device_type, int32_t device_index,
                                        AtenTensorHandle* ret_new_tensor);  // new
AOTITorchError torch_from_blob(void* data, int64_t ndim, const int64_t* sizes_ptr,
                               const int64_t* strides_ptr, int64_t storage_offset, int32_t dtype,
                               int32_t device_type, int32_t device_index, AtenTensorHandle* ret,
                               int32_t layout, const uint8_t* opaque_metadata,
                               int64_t opaque_metadata_size, void (*deleter)(void* data, void* ctx),
                               void* deleter_ctx);  // new
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);

bool aoti_torch_grad_mode_is_enabled();

AOTITorchError torch_new_list_reserve_size(size_t size, StableListHandle* ret);  // new
AOTITorchError torch_list_size(StableListHandle list_handle, size_t* size);
AOTITorchError torch_list_get_item(StableListHandle list_handle, size_t index,
                                   StableIValue* element);  // new
AOTITorchError torch_list_push_back(StableListHandle list_handle,
                                    StableIValue element);  // takes it
AOTITorchError torch_delete_list(StableListHandle list_handle);

AOTITorchError torch_delete_string(StringHandle handle);
AOTITorchError torch_string_length(StringHandle handle, size_t* length);
AOTITorchError torch_string_c_str(StringHandle handle, const char** data);

AOTITorchError aoti_torch_library_init_fragment(const char* ns, const char* file, uint32_t line,
                                                TorchLibraryHandle* ret_new_torch_lib);  // new
AOTITorchError aoti_torch_library_init_impl(const char* ns, const char* k, const char* file,
                                            uint32_t line,
                                            TorchLibraryHandle* ret_new_torch_lib);  // new
AOTITorchError aoti_torch_library_def(TorchLibraryHandle self, const char* schema);
AOTITorchError torch_library_impl(TorchLibraryHandle self, const char* name,
                                  void (*fn)(StableIValue*, uint64_t, uint64_t),
                                  uint64_t extension_build_version);
// Takes the arguments and leaves the results in `stack`, which has room for either.
AOTITorchError torch_call_dispatcher(const char* opName, const char* overloadName,
                                     StableIValue* stack, uint64_t extension_build_version);
}

namespace opdock::torch {

// The version of torch whose interface this library uses, as torch counts: 2.11.0. torch hands
// arguments over as this version did.
inline constexpr uint64_t kTorchVersion = uint64_t{2} << 56 | uint64_t{11} << 48;

}  // namespace opdock::torch

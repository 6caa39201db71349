// The structs by which Python libraries exchange arrays: DLPack 1.x's managed tensors and its C
// exchange table (https://dmlc.github.io/dlpack/latest/c_api.html). opdock_tensor has the layout of
// DLTensor and is used in its place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "opdock/plugin.h"

namespace opdock::python {

struct DlpackVersion {
  uint32_t major;
  uint32_t minor;
};
inline constexpr DlpackVersion kDlpackVersion{1, 3};

inline constexpr uint64_t kDlpackReadOnly = 1;
inline constexpr uint64_t kDlpackCopied = 2;

// Further device types, whose memory is accessible from a device type of plugin.h.
inline constexpr int32_t kDlpackCudaHost = 3;
inline constexpr int32_t kDlpackRocmHost = 11;
inline constexpr int32_t kDlpackCudaManaged = 13;

// The owner of a managed tensor calls its deleter, if not NULL, exactly once.
struct DlpackManaged {  // capsule "dltensor"
  opdock_tensor tensor;
  void* context;
  void (*deleter)(DlpackManaged* self);
};

struct DlpackManagedVersioned {  // capsule "dltensor_versioned"
  DlpackVersion version;
  void* context;
  void (*deleter)(DlpackManagedVersioned* self);
  uint64_t flags;
  opdock_tensor tensor;
};

// The static table that a type's __dlpack_c_exchange_api__ capsule ("dlpack_exchange_api") points
// to. Every function returns 0, or another value with a Python error set, except `allocate`, which
// reports through its callback. The GIL must be held.
struct DlpackExchange {
  DlpackVersion version;
  const DlpackExchange* previous;  // the table of an older major version, or NULL
  int (*allocate)(opdock_tensor* prototype, DlpackManagedVersioned** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*from_python)(void* object, DlpackManagedVersioned** out);
  int (*to_python)(DlpackManagedVersioned* tensor, void** out);  // takes ownership only on success
  int (*borrow)(void* object, opdock_tensor* out);               // may be NULL
  int (*current_stream)(int32_t device_type, int32_t device_index, void** out);
};

static_assert(sizeof(opdock_tensor) == 48 && offsetof(opdock_tensor, byte_offset) == 40);
static_assert(sizeof(DlpackManaged) == 64 && sizeof(DlpackManagedVersioned) == 80);
static_assert(offsetof(DlpackExchange, allocate) == 16);

}  // namespace opdock::python

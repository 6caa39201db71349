// SPDX-License-Identifier: Apache-2.0
#include "keep.h"

#include <atomic>
#include <new>

#include "gil.h"
#include "plain_arguments.h"

namespace opdock::python {

namespace {

struct Kept {
  PyObject* object;
  Kept* next = nullptr;
};

// References that were given back; a thread that holds the GIL drops them. A plugin's thread must
// not wait for the GIL, because the thread that holds it may be waiting for the plugin.
std::atomic<Kept*> given_back{nullptr};
std::atomic<bool> is_scheduled{false};  // drop_pending() will run

int drop_pending(void*) {
  drop_kept();
  return 0;
}

// Returns the object that owns the tensor's memory; borrowed. NULL if the tensor is no argument.
PyObject* find_object(const KeptArguments& arguments, const opdock_tensor* tensor) {
  // The array may have exported a copy, which only the import holds.
  for (const Import* import = arguments.imports; import != nullptr; import = import->next) {
    if (import->tensor == tensor) return import->owner;
  }
  for (uint32_t i = 0; i < arguments.info->num_params; ++i) {
    const opdock_value& value = arguments.values[i];
    if (value.tag == OPDOCK_TAG_TENSOR && value.as.tensor == tensor) return arguments.objects[i];
    if (value.tag != OPDOCK_TAG_LIST || arguments.info->params[i].tag != OPDOCK_TAG_TENSOR)
      continue;
    for (uint64_t k = 0; k < value.as.list->count; ++k) {
      if (value.as.list->data[k].as.tensor == tensor) return list_item(value, k);
    }
  }
  return nullptr;
}

opdock_status retain(void* context, const opdock_tensor* tensor, void** out) {
  Kept* kept = new (std::nothrow) Kept{find_object(*static_cast<KeptArguments*>(context), tensor)};
  if (kept == nullptr) return OPDOCK_OUT_OF_MEMORY;
  if (kept->object == nullptr) {
    delete kept;
    return OPDOCK_INTERNAL;
  }
  const Gil gil;  // the call may have released it
  Py_INCREF(kept->object);
  *out = kept;
  return OPDOCK_OK;
}

void release(void* what) {
  Kept* kept = static_cast<Kept*>(what);
  Kept* before = given_back.load(std::memory_order_relaxed);
  do {
    kept->next = before;
  } while (!given_back.compare_exchange_weak(before, kept, std::memory_order_acq_rel));
  // From here on `kept` may be deleted. Py_AddPendingCall() needs no GIL. If its queue is full, the
  // next release, or the next call of such an op, drops the references.
  if (Py_IsInitialized() != 0 && !is_scheduled.exchange(true) &&
      Py_AddPendingCall(drop_pending, nullptr) != 0) {
    is_scheduled = false;
  }
}

}  // namespace

opdock_keeper keeper_of(KeptArguments* arguments) {
  return {sizeof(opdock_keeper), 0, arguments, retain, release};
}

void drop_kept() {
  is_scheduled = false;  // must come first: later references schedule a new call
  Kept* kept = given_back.exchange(nullptr, std::memory_order_acq_rel);
  while (kept != nullptr) {
    Kept* const next = kept->next;
    Py_DECREF(kept->object);
    delete kept;
    kept = next;
  }
}

}  // namespace opdock::python

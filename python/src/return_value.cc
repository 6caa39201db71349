// SPDX-License-Identifier: Apache-2.0
#include "return_value.h"

#include "object.h"

namespace opdock::python {

namespace {

[[gnu::noinline]] PyObject* gather_list(PyObject** fresh, uint32_t count) {
  PyObject* list = PyList_New(count);
  for (uint32_t k = 0; k < count; ++k) {
    if (list == nullptr) {
      Py_DECREF(fresh[k]);
    } else {
      PyList_SET_ITEM(list, k, fresh[k]);
    }
  }
  return list;
}

// Converts a result that is no new tensor. Takes over the object in `value`.
PyObject* gather_value(opdock_value& value) {
  if (value.tag != OPDOCK_TAG_OBJECT) return value_to_python(value);
  opdock_object* const object = value.as.object;
  value = {};
  return wrap_object(object);
}

}  // namespace

PyObject* gather(const FunctionInfo& info, PyObject* const* objects, opdock_value* values,
                 const Fresh& fresh) {
  const uint32_t count = info.num_results;
  if (count == 0) Py_RETURN_NONE;
  PyObject** next = fresh.objects;
  const auto take = [&](uint32_t i) -> PyObject* {
    const opdock_result& result = info.results[i];
    if (result.param >= 0) {
      PyObject* object = objects[result.param];
      return Py_NewRef(object == nullptr ? Py_None : object);
    }
    if (result.tag != OPDOCK_TAG_TENSOR) return gather_value(values[i]);
    const uint32_t tensors = fresh.of(info, i);
    PyObject** const first = next;
    next += tensors;
    if ((result.flags & OPDOCK_PARAM_LIST) != 0) return gather_list(first, tensors);
    return tensors == 0 ? Py_NewRef(Py_None) : *first;
  };
  if (count == 1) return take(0);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  bool good = tuple != nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    PyObject* object = take(i);
    good = good && object != nullptr;
    if (tuple != nullptr) {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), object);
    } else {
      Py_XDECREF(object);
    }
  }
  if (!good) Py_CLEAR(tuple);
  return tuple;
}

PyObject* finish_all(const FunctionInfo& info, Frame& frame, PyObject* const* objects,
                     opdock_value* values, Fresh& fresh) {
  fresh.objects = frame.take<PyObject*>(fresh.count + 1);
  uint32_t done = 0;
  while (done < fresh.count &&
         (fresh.objects[done] = finish_result(frame, &fresh.tensors[done])) != nullptr) {
    ++done;
  }
  if (done == fresh.count) return gather(info, objects, values, fresh);
  for (uint32_t i = 0; i < done; ++i) Py_DECREF(fresh.objects[i]);
  for (uint32_t i = done; i < fresh.count; ++i) drop_result(&fresh.tensors[i]);
  for (uint32_t i = 0; i < info.num_results; ++i) opdock_value_free(&values[i]);
  return nullptr;
}

void bind_outputs(const FunctionInfo& info, Frame& frame, const Fresh& fresh,
                  opdock_value* values) {
  Result* next = fresh.tensors;
  for (uint32_t i = 0; i < info.num_results; ++i) {
    values[i] = {};
    const uint32_t tensors = fresh.of(info, i);
    if ((info.results[i].flags & OPDOCK_PARAM_LIST) != 0) {
      opdock_value* items = frame.take<opdock_value>(tensors + 1);
      for (uint32_t k = 0; k < tensors; ++k) {
        items[k] = {OPDOCK_TAG_TENSOR, 0, {.tensor = &next[k].tensor}};
      }
      opdock_list* list = frame.take<opdock_list>(1);
      *list = {items, tensors};
      values[i] = {OPDOCK_TAG_LIST, 0, {.list = list}};
    } else if (tensors != 0) {
      values[i] = {OPDOCK_TAG_TENSOR, 0, {.tensor = &next->tensor}};
    }
    next += tensors;
  }
}

void take_from_host(const FunctionInfo& info, const Fresh& fresh, opdock_value* values) {
  Result* next = fresh.tensors;
  const auto take = [&](const opdock_value& value) {
    *next++ = {{}, nullptr, nullptr, const_cast<opdock_tensor*>(value.as.tensor), nullptr};
  };
  for (uint32_t i = 0; i < info.num_results; ++i) {
    opdock_value& value = values[i];
    if (!is_fresh(info.results[i])) continue;
    if (value.tag == OPDOCK_TAG_TENSOR) {
      take(value);
      value = {};
    } else if (value.tag == OPDOCK_TAG_LIST) {
      for (uint64_t k = 0; k < value.as.list->count; ++k) {
        opdock_value& item = const_cast<opdock_value&>(value.as.list->data[k]);
        take(item);
        item.flags = 0;
      }
      opdock_value_free(&value);
    }
  }
}

}  // namespace opdock::python

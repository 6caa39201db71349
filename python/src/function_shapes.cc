// Tells Python what an op's results will be, without their data: its shape rules, for symbolic
// sizes, and the plan of one call, for sizes that are numbers.
// SPDX-License-Identifier: Apache-2.0
#include "function_shapes.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "check.h"
#include "errors.h"
#include "frame.h"
#include "function.h"
#include "gil.h"
#include "opdock/formula.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

py::tuple dtype_numbers(opdock_dtype dtype) {
  return py::make_tuple(dtype.code, dtype.bits, dtype.lanes);
}

py::tuple shape_to_python(const opdock_shape& shape) {
  py::list dims;
  for (uint32_t i = 0; i < shape.num_dims; ++i) {
    const opdock_dim& dim = shape.dims[i];
    dims.append(py::make_tuple(dim.expr, dim.param, dim.element, dim.from, dim.to));
  }
  py::object dtype = py::none();
  if (shape.dtype.bits != 0) dtype = dtype_numbers(shape.dtype);
  return py::make_tuple(dims, dtype, shape.dtype_param, shape.dtype_element);
}

py::tuple rule_to_python(const opdock_shape_rule& rule) {
  py::list nodes;
  for (uint32_t i = 0; i < rule.num_exprs; ++i) {
    const opdock_expr& node = rule.exprs[i];
    nodes.append(
        py::make_tuple(node.kind, node.param, node.integer, node.a, node.b, node.c, node.element));
  }
  py::object otherwise = py::none();
  if (rule.condition >= 0 && rule.otherwise_none == 0) otherwise = shape_to_python(rule.otherwise);
  return py::make_tuple(rule.condition, shape_to_python(rule.then), otherwise, rule.count, nodes);
}

// Turns (dtype, device, shape, strides) into a tensor without data, in memory of the frame.
opdock_value describe_tensor(Frame& frame, const py::handle& object) {
  const auto [dtype, device, shape, strides] =
      object.cast<std::tuple<std::tuple<uint8_t, uint8_t, uint16_t>, std::pair<int32_t, int32_t>,
                             std::vector<int64_t>, std::vector<int64_t>>>();
  if (shape.size() != strides.size()) throw py::value_error("plan(): a stride for each dimension");
  opdock_tensor* tensor = frame.take<opdock_tensor>(1);
  *tensor = {};
  int64_t* numbers = frame.take<int64_t>(2 * shape.size() + 1);
  tensor->ndim = static_cast<int32_t>(shape.size());
  tensor->shape = numbers;
  tensor->strides = numbers + shape.size();
  for (const int64_t size : shape) *numbers++ = size;
  for (const int64_t stride : strides) *numbers++ = stride;
  tensor->dtype.code = std::get<0>(dtype);
  tensor->dtype.bits = std::get<1>(dtype);
  tensor->dtype.lanes = std::get<2>(dtype);
  tensor->device = {device.first, device.second};
  opdock_value value = {OPDOCK_TAG_TENSOR, OPDOCK_VALUE_NO_DATA, {.i64 = 0}};
  value.as.tensor = tensor;
  return value;
}

opdock_value describe(Frame& frame, const FunctionInfo& info, const opdock_param& param,
                      const py::handle& object) {
  if (object.is_none()) return {OPDOCK_TAG_NONE, 0, {.i64 = 0}};
  if (param.tag != OPDOCK_TAG_TENSOR) {
    opdock_value value;
    const Where where{info.name.c_str(), param.name};
    if (!convert_argument(frame, where, param, object.ptr(), &value)) throw py::error_already_set();
    return value;
  }
  if ((param.flags & OPDOCK_PARAM_LIST) == 0) return describe_tensor(frame, object);
  const py::sequence items = py::reinterpret_borrow<py::sequence>(object);
  opdock_value* elements = frame.take<opdock_value>(items.size() + 1);
  for (size_t i = 0; i < items.size(); ++i) {
    const py::object item = items[i];
    elements[i] = item.is_none() ? opdock_value{OPDOCK_TAG_NONE, 0, {.i64 = 0}}
                                 : describe_tensor(frame, item);
  }
  opdock_list* list = frame.take<opdock_list>(1);
  *list = {elements, items.size()};
  opdock_value value = {OPDOCK_TAG_LIST, 0, {.i64 = 0}};
  value.as.list = list;
  return value;
}

const FunctionInfo& checked_info(const py::handle& function) {
  const FunctionInfo* info = function_info(function.ptr());
  if (info == nullptr) throw py::error_already_set();
  return *info;
}

py::list shape_rules(const py::handle& function) {
  const FunctionInfo& info = checked_info(function);
  py::list rules;
  for (uint32_t i = 0; i < info.num_results; ++i) {
    const opdock_shape_rule* rule = info.results[i].shape_rule;
    if (rule == nullptr) {
      rules.append(py::none());
    } else {
      rules.append(rule_to_python(*rule));
    }
  }
  return rules;
}

py::list plan(const py::handle& function, const py::sequence& arguments) {
  const FunctionInfo& info = checked_info(function);
  if (arguments.size() != info.num_params) {
    throw py::value_error("plan(): " + info.name + ": an argument for each parameter");
  }
  Frame frame;
  opdock_value* values = frame.take<opdock_value>(info.num_params + 1);
  for (uint32_t i = 0; i < info.num_params; ++i) {
    values[i] = describe(frame, info, info.params[i], py::object(arguments[i]));
  }
  uint32_t room = info.num_fresh;
  if (info.is_variable) {
    std::vector<uint32_t> counts(info.num_results + 1);
    check([&](char* error, uint32_t size) {
      return opdock_count_results(info.handle, values, info.num_params, counts.data(), error, size);
    });
    room = 0;
    for (uint32_t i = 0; i < info.num_results; ++i) room += counts[i];
  }
  std::vector<opdock_output> outputs(room + 1);
  opdock_plan planned = {};
  planned.struct_size = sizeof planned;
  planned.room = room;
  planned.outputs = outputs.data();
  check([&](char* error, uint32_t size) {
    return opdock_plan_call(info.handle, nullptr, values, info.num_params, &planned, error, size);
  });
  py::list found;
  for (uint32_t i = 0; i < planned.num_outputs; ++i) {
    const opdock_output& output = outputs[i];
    found.append(py::make_tuple(
        dtype_numbers(output.dtype),
        py::tuple(py::cast(std::vector<int64_t>(output.shape, output.shape + output.ndim)))));
  }
  return found;
}

}  // namespace

void add_shapes(py::module_& module) {
  module.def("op_facts", [](const py::handle& op) {
    const opdock_function_info& declared = *checked_info(op).declared;
    return py::make_tuple(declared.flags, declared.device_arg);
  });
  module.def("formula_text", [](const py::handle& op) {
    const opdock_function* function = checked_info(op).handle;
    const GilRelease release;  // this may load the plugin
    return std::string(opdock_function_formula(function));
  });
  module.def("shape_rules", &shape_rules);
  module.def("plan", &plan);
}

}  // namespace opdock::python

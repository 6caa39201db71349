// Shared by the tests of the call path: ops that are functions of the test program, arguments, and
// a resolver that knows these ops.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "call/call.h"
#include "call/function.h"
#include "call/host.h"
#include "opdock/plugin.h"

namespace opdock::testing_support {

inline constexpr opdock_dtype kF32{OPDOCK_DTYPE_FLOAT, 32, 1};
inline constexpr opdock_dtype kF64{OPDOCK_DTYPE_FLOAT, 64, 1};
inline constexpr opdock_dtype kI32{OPDOCK_DTYPE_INT, 32, 1};
inline constexpr opdock_device kCpu{OPDOCK_CPU, 0};

// Owns tensors, values and the memory that they point to; addresses never change.
class Arguments {
 public:
  // Makes a tensor, contiguous and zeroed unless strides and data are given.
  opdock_tensor* tensor(std::vector<int64_t> shape, opdock_dtype dtype = kF32,
                        std::vector<int64_t> strides = {}, void* data = nullptr) {
    if (strides.empty()) {
      strides.assign(shape.size(), 1);
      for (size_t i = shape.size(); i-- > 1;) {
        strides[i - 1] = strides[i] * (shape[i] > 1 ? shape[i] : 1);
      }
    }
    if (data == nullptr) {
      int64_t count = 1;
      for (size_t i = 0; i < shape.size(); ++i)
        count += (shape[i] < 1 ? 0 : shape[i] - 1) * std::abs(strides[i]);
      memory_.emplace_back(static_cast<size_t>(count) * 16 / 8);
      data = memory_.back().data();
    }
    ints_.push_back(std::move(shape));
    std::vector<int64_t>& sizes = ints_.back();
    ints_.push_back(std::move(strides));
    tensors_.push_back({data, kCpu, static_cast<int32_t>(sizes.size()), dtype, sizes.data(),
                        ints_.back().data(), 0});
    return &tensors_.back();
  }
  static opdock_value value(const opdock_tensor* tensor, uint32_t flags = 0) {
    opdock_value v{};
    v.tag = OPDOCK_TAG_TENSOR;
    v.flags = flags;
    v.as.tensor = tensor;
    return v;
  }
  static opdock_value none() { return opdock_value{}; }
  static opdock_value integer(int64_t number) {
    opdock_value v{};
    v.tag = OPDOCK_TAG_INT;
    v.as.i64 = number;
    return v;
  }
  static opdock_value boolean(bool truth) {
    opdock_value v = integer(truth ? 1 : 0);
    v.tag = OPDOCK_TAG_BOOL;
    return v;
  }
  static opdock_value real(double number) {
    opdock_value v{};
    v.tag = OPDOCK_TAG_FLOAT;
    v.as.f64 = number;
    return v;
  }
  opdock_value text(const char* characters) {
    strings_.push_back({characters, std::strlen(characters)});
    opdock_value v{};
    v.tag = OPDOCK_TAG_STRING;
    v.as.str = &strings_.back();
    return v;
  }
  opdock_value list(std::vector<opdock_value> items) {
    items_.push_back(std::move(items));
    lists_.push_back({items_.back().data(), items_.back().size()});
    opdock_value v{};
    v.tag = OPDOCK_TAG_LIST;
    v.as.list = &lists_.back();
    return v;
  }

 private:
  std::deque<std::vector<double>> memory_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<opdock_tensor> tensors_;
  std::deque<opdock_string> strings_;
  std::deque<std::vector<opdock_value>> items_;
  std::deque<opdock_list> lists_;
};

inline opdock_status plan_nothing(const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {
  return OPDOCK_OK;
}
inline opdock_status run_nothing(const opdock_call*, const opdock_value*, uint32_t, opdock_value*,
                                 uint32_t) {
  return OPDOCK_OK;
}
// Plans every output like the first argument, which is a tensor.
inline opdock_status plan_like(const opdock_call*, const opdock_value* args, uint32_t,
                               opdock_plan* plan) {
  const opdock_tensor& x = *args[0].as.tensor;
  for (uint32_t i = 0; i < plan->num_outputs; ++i) {
    plan->outputs[i].dtype = x.dtype;
    plan->outputs[i].ndim = x.ndim;
    for (int32_t k = 0; k < x.ndim; ++k) plan->outputs[i].shape[k] = x.shape[k];
  }
  return OPDOCK_OK;
}

// Makes an op of these functions; its strings belong to the caller.
inline opdock_op make_op(const char* schema, decltype(opdock_op::plan) plan,
                         decltype(opdock_op::run) run = run_nothing,
                         decltype(opdock_op::prepare) prepare = nullptr,
                         uint32_t flags = OPDOCK_OP_THREAD_SAFE) {
  opdock_op op{};
  op.struct_size = sizeof op;
  op.flags = flags;
  op.schema = schema;
  op.doc = "";
  op.plan = plan;
  op.prepare = prepare;
  op.run = run;
  return op;
}
// Makes an op that does nothing.
inline opdock_op make_op(const char* schema, uint32_t flags = OPDOCK_OP_THREAD_SAFE) {
  return make_op(schema, plan_nothing, run_nothing, nullptr, flags);
}

// double(Tensor x) -> Tensor returns 2 * x for one-dimensional float32. The op lives as long as the
// process.
inline opdock_status run_double(const opdock_call*, const opdock_value* args, uint32_t,
                                opdock_value* results, uint32_t) {
  const opdock_tensor& x = *args[0].as.tensor;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    static_cast<float*>(results[0].as.tensor->data)[i] = 2 * static_cast<float*>(x.data)[i];
  }
  return OPDOCK_OK;
}
inline const opdock_op* double_op() {
  static const opdock_op op = make_op("double(Tensor x) -> Tensor", plan_like, run_double);
  return &op;
}

// Resolves one op, on the CPU unless a test sets a driver. The op must outlive the process's
// targets, so tests make ops static.
class TestResolver : public Resolver {
 public:
  explicit TestResolver(const opdock_op* op) : op_(op) {}
  Status resolve(const opdock_function&, opdock_device device, Target** out) override {
    ++resolved;
    if (device.type != OPDOCK_CPU && driver == nullptr) {
      return {OPDOCK_INCOMPATIBLE, "nothing for this device"};
    }
    const opdock_device_facts* facts = cpu_facts();
    if (device.type != OPDOCK_CPU) {
      Status asked = driver->facts(device.index, &facts);
      if (!asked.ok()) return asked;
    }
    const bool is_cpu = device.type == OPDOCK_CPU;
    std::unique_ptr<const TensorRules> tensor_rules;
    Reason error{};
    if (!read_tensor_rules(*op_, rules_of(op_), &tensor_rules, &error))
      return {OPDOCK_INTERNAL, to_text(error)};
    *out = intern_target(op_, "test", device, facts, is_cpu ? nullptr : driver,
                         is_cpu ? nullptr : kernels, dtypes, rules_of(op_), tuning,
                         std::move(tensor_rules));
    return {};
  }
  // Returns the op's shape rules, if it declares any.
  static std::vector<ShapeRule> rules_of(const opdock_op* op) {
    if (op->num_shape_rules == 0) return {};
    const std::vector<std::string> texts(op->shape_rules, op->shape_rules + op->num_shape_rules);
    Reason ignored{};
    return *parse_shape_rules(texts, *parse_schema(op->schema, nullptr), &ignored);
  }
  std::string doc(const opdock_function&) override { return op_->doc; }
  void log(int32_t level, const char* message) override {
    logged += std::to_string(level) + " " + message;
  }
  uint32_t threads() const override { return 4; }
  bool cancelled() override {
    ++asked;
    return wants_end;
  }

  std::vector<opdock_dtype> dtypes;
  Driver* driver = nullptr;
  Kernels* kernels = nullptr;
  Tuning* tuning = nullptr;
  std::atomic<int> resolved{0}, asked{0};
  bool wants_end = false;
  std::string logged;

 private:
  const opdock_op* op_;
};

// Results of an op that returns only tensors. `tensors` are the fresh ones: given, or allocated
// where NULL.
class Values {
 public:
  Values(const opdock_function& function, opdock_tensor* const* tensors, uint32_t count) {
    const bool is_right = count == function.fresh();
    values_.resize(is_right ? function.num_results() : count);
    for (uint32_t i = 0; i < values_.size(); ++i) {
      if (is_right && function.results()[i].param >= 0) continue;
      places_.push_back(i);
    }
    for (uint32_t k = 0; tensors != nullptr && k < count; ++k) {
      if (tensors[k] != nullptr) values_[places_[k]] = Arguments::value(tensors[k]);
    }
  }
  opdock_value* data() { return values_.empty() ? nullptr : values_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(values_.size()); }
  // Stores the allocated tensors in the entries of `tensors` that were NULL.
  void give_back(opdock_tensor** tensors, uint32_t count) const {
    for (uint32_t k = 0; tensors != nullptr && k < count; ++k) {
      if (tensors[k] == nullptr) {
        tensors[k] = const_cast<opdock_tensor*>(values_[places_[k]].as.tensor);
      }
    }
  }

 private:
  std::vector<opdock_value> values_;
  std::vector<uint32_t> places_;  // indices of the fresh results
};

// Wrappers of opdock.h's functions for tests. `outputs` are the fresh tensors of an op that returns
// only tensors.
inline opdock_status plan_call(opdock_function& function, const opdock_call_options* options,
                               const opdock_value* args, uint32_t num_args, opdock_plan* plan,
                               const ErrorBuffer& error) {
  return opdock_plan_call(&function, options, args, num_args, plan, error.data, error.size);
}
inline opdock_status run_planned(opdock_function& function, const opdock_call_options* options,
                                 const opdock_plan* plan, const opdock_value* args,
                                 uint32_t num_args, opdock_tensor* const* outputs,
                                 uint32_t num_outputs, const ErrorBuffer& error) {
  Values results(function, outputs, num_outputs);
  return opdock_run_planned(&function, options, plan, args, num_args, results.data(),
                            results.size(), error.data, error.size);
}
inline opdock_status invoke(opdock_function& function, const opdock_call_options* options,
                            const opdock_value* args, uint32_t num_args, opdock_tensor** outputs,
                            uint32_t num_outputs, const ErrorBuffer& error) {
  Values results(function, outputs, num_outputs);
  const opdock_status status = opdock_invoke(&function, options, args, num_args, results.data(),
                                             results.size(), error.data, error.size);
  results.give_back(outputs, num_outputs);
  return status;
}
inline opdock_status prepare(opdock_function& function, opdock_device device,
                             const ErrorBuffer& error) {
  return opdock_prepare(&function, device, error.data, error.size);
}

// A function with a resolver for one op.
struct TestFunction {
  explicit TestFunction(const opdock_op* op)
      : resolver(op), function("test", *parse_schema(op->schema, nullptr), &resolver) {}
  opdock_status plan(std::vector<opdock_value> args, opdock_plan* p,
                     const opdock_call_options* options = nullptr) {
    error[0] = '\0';
    return plan_call(function, options, args.data(), static_cast<uint32_t>(args.size()), p,
                     {error, sizeof error});
  }
  opdock_status invoke(std::vector<opdock_value> args, std::vector<opdock_tensor*> outputs = {},
                       const opdock_call_options* options = nullptr) {
    error[0] = '\0';
    return testing_support::invoke(function, options, args.data(),
                                   static_cast<uint32_t>(args.size()), outputs.data(),
                                   static_cast<uint32_t>(outputs.size()), {error, sizeof error});
  }
  TestResolver resolver;
  opdock_function function;
  char error[1024] = "";
};

}  // namespace opdock::testing_support

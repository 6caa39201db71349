// SPDX-License-Identifier: Apache-2.0
#include "record.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "direct.h"
#include "error.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

namespace {

// Returns false for a constant that a gradient's call cannot be given.
bool to_argument(const opdock_value& value, Argument* out) {
  using Kind = Argument::Kind;
  *out = {};
  switch (value.tag) {
    case OPDOCK_TAG_NONE:
      return true;
    case OPDOCK_TAG_BOOL:
    case OPDOCK_TAG_INT:
      out->kind = value.tag == OPDOCK_TAG_BOOL ? Kind::kBool : Kind::kInt;
      out->number = value.as.i64;
      return true;
    case OPDOCK_TAG_FLOAT:
      out->kind = Kind::kFloat;
      std::memcpy(&out->number, &value.as.f64, sizeof out->number);
      return true;
    case OPDOCK_TAG_STRING:
      out->kind = Kind::kText;
      out->text = value.as.str->data;
      out->number = static_cast<int64_t>(value.as.str->size);
      return true;
    case OPDOCK_TAG_DTYPE:
      out->kind = Kind::kDtype;
      out->number = from_dtype(value.as.dtype);
      return out->number >= 0;
    default:
      return false;
  }
}

// The operator of a gradient: torch shows its parameters without the generators, and its new
// results.
struct Helper {
  std::vector<uint32_t> parameters, results;  // indices of the op's
  std::string name;
  const opdock_function_info* info = nullptr;

  Helper(const char* op, const char* gradient, const char* params) {
    const char* found = nullptr;
    opdock_function* const function = python.find_gradient(op, gradient, params, &found);
    name = found;
    info = opdock_describe(function);
    for (uint32_t i = 0; i < info->num_params; ++i) {
      if (info->params[i].tag != OPDOCK_TAG_GENERATOR) parameters.push_back(i);
    }
    for (uint32_t i = 0; i < info->num_results; ++i) {
      if (info->results[i].param < 0) results.push_back(i);
    }
  }
};

template <typename Items>
uint32_t place_of(const Items& items, uint32_t index) {
  for (size_t place = 0; place < items.size(); ++place) {
    if (items[place].index == index) return static_cast<uint32_t>(place);
  }
  return UINT32_MAX;
}

uint32_t place_in(const std::vector<uint32_t>& indices, uint32_t index) {
  for (size_t place = 0; place < indices.size(); ++place) {
    if (indices[place] == index) return static_cast<uint32_t>(place);
  }
  return UINT32_MAX;
}

// Tells what the gradients of an operator are computed from, of an op that declares them or of a
// formula.
class GradientPlans : public Differentiable {
 public:
  GradientPlans(const Operator& op, bool is_formula)
      : info_(*op.info), parameters_(op.parameters), results_(op.results), is_formula_(is_formula) {
    name = op.name;
    saved_parameters.assign(parameters_.size(), is_formula);
    saved_results.assign(results_.size(), false);
    for (const Result& result : results_) list_results.push_back(result.is_list);
    for_each_argument([this](const opdock_gradient_arg& argument) {
      if (argument.kind == OPDOCK_GRADIENT_PARAM)
        mark(place_of(parameters_, argument.index), &saved_parameters);
      if (argument.kind == OPDOCK_GRADIENT_RESULT)
        mark(place_of(results_, argument.index), &saved_results);
    });
  }

  // Returns whether the recorder can hold what the gradients are computed from.
  bool is_possible() const {
    if (parameters_.size() > 64) return false;
    bool possible = true;
    for_each_argument([&](const opdock_gradient_arg& argument) {
      Argument constant;
      if (argument.kind == OPDOCK_GRADIENT_CONSTANT)
        possible = possible && to_argument(argument.constant, &constant);
    });
    for (size_t place = 0; place < parameters_.size(); ++place) {
      const Parameter& parameter = parameters_[place];
      if (!parameter.is_list) continue;
      const bool is_of_tensors = parameter.tag == OPDOCK_TAG_TENSOR;
      if (is_of_tensors ? parameter.has_optional_elements || parameter.is_optional
                        : saved_parameters[place])
        return false;
    }
    return possible;
  }

  std::vector<GradientCall> plan(uint64_t wanted) const override {
    return is_formula_ ? plan_formula(wanted) : plan_declared(wanted);
  }

  [[noreturn]] void refuse(uint32_t place, const std::string& by) const override {
    refuse_because(place, by + " returned none");
  }

  bool leave(const std::exception_ptr& error) const override { return python.leave(error); }

 private:
  template <typename Function>
  void for_each_argument(const Function& function) const {
    for (uint32_t i = 0; i < info_.num_gradients; ++i) {
      const opdock_gradient& gradient = info_.gradients[i];
      if (gradient.op == nullptr) continue;
      for (uint32_t k = 0; k < gradient.num_args; ++k) function(gradient.args[k]);
    }
  }

  static void mark(uint32_t place, std::vector<bool>* saved) {
    if (place != UINT32_MAX) (*saved)[place] = true;
  }

  [[noreturn]] void refuse_because(uint32_t place, const std::string& why) const {
    fail(OPDOCK_UNSUPPORTED, name + ": found a gradient to compute for '" +
                                 info_.params[parameters_[place].index].name +
                                 "', which this op does not define (" + why +
                                 "); call it under torch.no_grad(), or pass x.detach() for that "
                                 "argument");
  }

  std::vector<GradientCall> plan_declared(uint64_t left) const {
    std::vector<GradientCall> calls;
    for (uint32_t i = 0; i < info_.num_gradients; ++i) {
      const opdock_gradient& gradient = info_.gradients[i];
      std::vector<std::pair<uint32_t, uint32_t>> outputs;  // results as indices of the op's
      for (uint32_t k = 0; k < gradient.num_params; ++k) {
        const uint32_t place = place_of(parameters_, gradient.params[k]);
        if (place != UINT32_MAX && (left >> place & 1) != 0)
          outputs.emplace_back(place, gradient.results[k]);
      }
      if (outputs.empty()) continue;
      if (gradient.op == nullptr) refuse_because(outputs[0].first, gradient.why);
      calls.push_back(call_declared(gradient, std::move(outputs)));
      for (const auto& [place, result] : calls.back().outputs) left &= ~(uint64_t{1} << place);
    }
    if (left != 0) refuse_because(static_cast<uint32_t>(__builtin_ctzll(left)), "none is declared");
    return calls;
  }

  GradientCall call_declared(const opdock_gradient& gradient,
                             std::vector<std::pair<uint32_t, uint32_t>> outputs) const {
    const Helper helper(name.c_str(), gradient.op, nullptr);
    GradientCall call;
    call.name = helper.name;
    for (const uint32_t i : helper.parameters) {
      const opdock_gradient_arg& argument = gradient.args[i];
      Source source;
      switch (argument.kind) {
        case OPDOCK_GRADIENT_PARAM:
          source.kind = Source::Kind::kParameter;
          source.place = place_of(parameters_, argument.index);
          break;
        case OPDOCK_GRADIENT_RESULT:
          source.kind = Source::Kind::kResult;
          source.place = place_of(results_, argument.index);
          break;
        case OPDOCK_GRADIENT_INCOMING:
          source.kind = Source::Kind::kIncoming;
          source.place = place_of(results_, argument.index);
          source.may_lack = (helper.info->params[i].flags & OPDOCK_PARAM_OPTIONAL) != 0;
          break;
        default:
          to_argument(argument.constant, &source.constant);
      }
      call.sources.push_back(source);
    }
    for (auto& [place, result] : outputs) result = place_in(helper.results, result);
    call.outputs = std::move(outputs);
    return call;
  }

  // A formula's gradient takes the gradients of the results, then those of the parameters that it
  // needs, by their names.
  std::vector<GradientCall> plan_formula(uint64_t wanted) const {
    std::string names;
    std::vector<std::pair<uint32_t, uint32_t>> outputs;
    for (size_t place = 0; place < parameters_.size(); ++place) {
      if ((wanted >> place & 1) == 0) continue;
      outputs.emplace_back(static_cast<uint32_t>(place), static_cast<uint32_t>(outputs.size()));
      if (!names.empty()) names += ' ';
      names += info_.params[parameters_[place].index].name;
    }
    const Helper helper(name.c_str(), nullptr, names.c_str());
    GradientCall call;
    call.name = helper.name;
    call.outputs = std::move(outputs);
    for (size_t i = 0; i < helper.parameters.size(); ++i) {
      Source source;
      source.kind = i < results_.size() ? Source::Kind::kIncoming : Source::Kind::kParameter;
      source.place = i < results_.size()
                         ? static_cast<uint32_t>(i)
                         : place_named(helper.info->params[helper.parameters[i]].name);
      call.sources.push_back(source);
    }
    return {std::move(call)};
  }

  uint32_t place_named(std::string_view wanted) const {
    for (size_t place = 0; place < parameters_.size(); ++place) {
      if (wanted == info_.params[parameters_[place].index].name)
        return static_cast<uint32_t>(place);
    }
    fail(OPDOCK_INTERNAL, name + ": found the gradient's parameter '" + std::string(wanted) +
                              "', wanted one of the formula's");
  }

  const opdock_function_info& info_;
  const std::vector<Parameter> parameters_;
  const std::vector<Result> results_;
  const bool is_formula_;
};

}  // namespace

Recorder* recorder = nullptr;
std::atomic<bool> uses_recorder = true;

std::string open_recorder(const std::string& path, const std::string& wanted) {
  if (recorder != nullptr && recorder->built_for == wanted) return "";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return std::string(dlerror()) + "; wanted a recorder for torch " + wanted +
           "; build Opdock with this torch";
  const auto make =
      reinterpret_cast<decltype(&opdock_torch_recorder)>(dlsym(library, "opdock_torch_recorder"));
  Recorder* const found = make == nullptr ? nullptr : make();
  if (found == nullptr || found->built_for != wanted) {
    return path + ": found a library for torch " +
           (found == nullptr ? "of an unknown version" : found->built_for) + ", wanted one for " +
           wanted + "; build Opdock again with this torch";
  }
  recorder = found;
  open_direct(library);
  return "";
}

void* prepare_record(const Operator& op, bool is_formula) {
  if (recorder == nullptr || python.find_gradient == nullptr || op.is_written || op.results.empty())
    return nullptr;
  auto gradients = std::make_unique<GradientPlans>(op, is_formula);
  return gradients->is_possible() ? recorder->prepare(*gradients.release()) : nullptr;
}

}  // namespace opdock::torch

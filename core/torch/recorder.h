// Declares the recorder of libopdock_torch_autograd, which records calls for autograd without
// Python. That library is compiled against libtorch's C++ interface, which changes with each
// release, so it serves one build of torch; libopdock_torch, which serves all, works without it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

struct AtenTensorOpaque;

namespace opdock::torch {

// An argument of a call.
struct Argument {
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kText, kDtype, kDevice, kTensor, kList };
  Kind kind = Kind::kNone;
  // A number, or the bits of a double; a dtype by torch's number; a device as torch's type in the
  // upper half and its index in the lower one; of a text or a list the length.
  int64_t number = 0;
  union {
    const char* text = nullptr;
    AtenTensorOpaque* tensor;          // the address of an at::Tensor
    AtenTensorOpaque* const* tensors;  // of a list
  };
};

// Where a gradient's operator takes an argument from.
struct Source {
  enum class Kind : uint8_t { kParameter, kResult, kIncoming, kConstant };
  Kind kind = Kind::kConstant;
  uint32_t place = 0;     // of a parameter or a result of the operator that is differentiated
  bool may_lack = false;  // an incoming gradient that does not exist is None; otherwise zeros
  Argument constant;
};

// A call that computes gradients.
struct GradientCall {
  std::string name;  // of an operator opdock::<name>
  std::vector<Source> sources;
  // The places of parameters, each with that of the result that is its gradient.
  std::vector<std::pair<uint32_t, uint32_t>> outputs;
};

// An operator that may be differentiated.
class Differentiable {
 public:
  std::string name;
  // Which parameters and results the gradients are computed from. At most 64 parameters.
  std::vector<bool> saved_parameters;
  std::vector<bool> saved_results;
  std::vector<bool> list_results;  // which results are lists

  Differentiable() = default;
  Differentiable(const Differentiable&) = delete;
  Differentiable& operator=(const Differentiable&) = delete;
  virtual ~Differentiable() = default;

  // Returns the calls that compute the gradients of the parameters in `wanted`, a bit for each.
  // Throws an error that names the parameter if a gradient is not declared. Any thread.
  virtual std::vector<GradientCall> plan(uint64_t wanted) const = 0;
  // Throws the error for a gradient that `by`, an operator, has not returned.
  [[noreturn]] virtual void refuse(uint32_t place, const std::string& by) const = 0;
  // Keeps an exception of Opdock for the operator opdock_python::raise_left(Tensor x) -> (), which
  // raises it in Python; returns false for another one.
  virtual bool leave(const std::exception_ptr& error) const = 0;
};

// Records calls. All functions may throw, and may be called by any thread.
class Recorder {
 public:
  // The build of torch that the recorder serves, as in its file's name, its commit, and whether it
  // has the C++11 ABI: "2.13.0+cpu cf30153… 1".
  const char* built_for = nullptr;

  // Returns what begin() takes for an operator, which lives as long as the process, as `op` must.
  virtual void* prepare(const Differentiable& op) = 0;
  // Begins to record a call: keeps the arguments that the gradients are computed from.
  virtual void* begin(void* prepared, const Argument* arguments, size_t count) = 0;
  // Ends a record: the results require gradients from now on. counts: the number of tensors of each
  // result; NULL if each has one.
  virtual void finish(void* record, AtenTensorOpaque* const* results, const uint32_t* counts) = 0;
  // Deletes a record of a call that has failed. Does not throw.
  virtual void drop(void* record) = 0;

 protected:
  ~Recorder() = default;
};

}  // namespace opdock::torch

extern "C" {
// Returns the recorder of the library, which lives as long as the process.
[[gnu::visibility("default")]] opdock::torch::Recorder* opdock_torch_recorder();
}

// opdock/opdock.hpp: the host for programs in C++17, over opdock.h. Header-only; link libopdock.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Runtime runtime;
//   opdock::Function axpy = runtime.function("axpy");
//   std::vector<float> x(8, 1), y(8, 2);
//   opdock::TensorView tx(x.data(), {8}), ty(y.data(), {8});
//   std::vector<opdock::OwnedTensor> z = axpy(tx, ty, opdock::named("a", 2.0));
//
// Everything that fails throws opdock::Error with a status and a text. Threads, ownership and
// lifetimes are those of opdock.h.
#ifndef OPDOCK_OPDOCK_HPP_
#define OPDOCK_OPDOCK_HPP_

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opdock/opdock.h"
#include "opdock/types.hpp"

namespace opdock {

namespace detail {

// Calls a function of opdock.h with an error buffer; throws what it reports.
template <class F>
void checked(F&& call) {
  std::array<char, 4096> text;
  text[0] = '\0';
  opdock_status status = call(text.data(), static_cast<uint32_t>(text.size()));
  if (status == OPDOCK_OK) return;
  throw Error(status, text[0] != '\0' ? text.data() : opdock_status_name(status));
}

}  // namespace detail

// A tensor over memory that the program owns: it must outlive the calls that use it. Moves and
// copies; the copy views the same memory.
class TensorView {
 public:
  TensorView(void* data, Dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
             Device device = {})
      : data_(data),
        dtype_(dtype),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        device_(device) {
    if (strides_.size() != shape_.size()) {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  detail::concat("found ", strides_.size(), " strides, wanted ", shape_.size(),
                                 ", one a dimension"));
    }
  }
  // Contiguous, of T's dtype.
  template <class T>
  TensorView(T* data, std::vector<int64_t> shape, Device device = {})
      : TensorView(const_cast<std::remove_const_t<T>*>(data), dtype_of<T>(), shape,
                   contiguous(shape), device) {
    read_only_ = std::is_const_v<T>;
  }

  opdock_tensor get() const {
    return {data_,
            device_,
            static_cast<int32_t>(shape_.size()),
            dtype_,
            const_cast<int64_t*>(shape_.data()),
            const_cast<int64_t*>(strides_.data()),
            0};
  }
  bool read_only() const { return read_only_; }

 private:
  static std::vector<int64_t> contiguous(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * (shape[i] > 1 ? shape[i] : 1);
    }
    return strides;
  }

  void* data_;
  Dtype dtype_;
  std::vector<int64_t> shape_, strides_;
  Device device_;
  bool read_only_ = false;
};

// A tensor that the host allocated. Frees it.
class OwnedTensor {
 public:
  explicit OwnedTensor(opdock_tensor* tensor) : tensor_(tensor) {}
  const opdock_tensor& get() const { return *tensor_; }
  Dtype dtype() const { return tensor_->dtype; }
  int32_t ndim() const { return tensor_->ndim; }
  int64_t size(int32_t dimension) const { return tensor_->shape[dimension]; }
  template <class T>
  T* data() const {
    if (dtype() != dtype_of<T>()) {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  "data<" + dtype_of<T>().name() + ">() of a tensor of " + dtype().name());
    }
    return reinterpret_cast<T*>(static_cast<char*>(tensor_->data) + tensor_->byte_offset);
  }

 private:
  struct Free {
    void operator()(opdock_tensor* tensor) const { opdock_tensor_free(tensor); }
  };
  std::unique_ptr<opdock_tensor, Free> tensor_;
};

// Arguments of one call with the memory that their values point at.
class Arguments {
 public:
  template <class... Args>
  explicit Arguments(const Args&... args) {
    (add(args), ...);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const std::vector<opdock_value>& positional() const { return positional_; }
  const std::vector<opdock_value>& named() const { return named_; }
  const std::vector<const char*>& names() const { return names_; }

  // One argument by name, made by named().
  template <class T>
  struct Named {
    const char* name;
    T value;
  };

 private:
  template <class T>
  void add(const T& argument) {
    positional_.push_back(value(argument));
  }
  template <class T>
  void add(const Named<T>& argument) {
    names_.push_back(argument.name);
    named_.push_back(value(argument.value));
  }

  static opdock_value tagged(uint32_t tag) {
    opdock_value v = {};
    v.tag = tag;
    return v;
  }
  opdock_value value(std::nullopt_t) { return tagged(OPDOCK_NONE); }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  opdock_value value(T number) {
    opdock_value v = tagged(std::is_same_v<T, bool> ? OPDOCK_BOOL : OPDOCK_INT);
    v.as.i64 = static_cast<int64_t>(number);
    return v;
  }
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  opdock_value value(T number) {
    opdock_value v = tagged(OPDOCK_FLOAT);
    v.as.f64 = static_cast<double>(number);
    return v;
  }
  opdock_value value(std::string_view text) {
    strings_.push_back({text.data(), text.size()});
    opdock_value v = tagged(OPDOCK_STRING);
    v.as.str = &strings_.back();
    return v;
  }
  opdock_value value(const char* text) { return value(std::string_view(text)); }
  opdock_value value(const std::string& text) { return value(std::string_view(text)); }
  opdock_value value(Dtype dtype) {
    opdock_value v = tagged(OPDOCK_DTYPE);
    v.as.dtype = dtype;
    return v;
  }
  opdock_value value(Device device) {
    opdock_value v = tagged(OPDOCK_DEVICE);
    v.as.device = device;
    return v;
  }
  opdock_value value(const TensorView& tensor) {
    tensors_.push_back(tensor.get());
    opdock_value v = tagged(OPDOCK_TENSOR);
    v.flags = tensor.read_only() ? OPDOCK_VALUE_READ_ONLY : 0;
    v.as.tensor = &tensors_.back();
    return v;
  }
  opdock_value value(const OwnedTensor& tensor) {
    opdock_value v = tagged(OPDOCK_TENSOR);
    v.as.tensor = &tensor.get();
    return v;
  }
  template <class T>
  opdock_value value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : tagged(OPDOCK_NONE);
  }
  template <class T>
  opdock_value value(const std::vector<T>& list) {
    std::vector<opdock_value> items;
    for (const T& item : list) items.push_back(value(item));
    items_.push_back(std::move(items));
    lists_.push_back({items_.back().data(), items_.back().size()});
    opdock_value v = tagged(OPDOCK_LIST);
    v.as.list = &lists_.back();
    return v;
  }

  std::vector<opdock_value> positional_, named_;
  std::vector<const char*> names_;
  std::deque<opdock_string> strings_;  // deques keep their elements' addresses
  std::deque<opdock_tensor> tensors_;
  std::deque<std::vector<opdock_value>> items_;
  std::deque<opdock_list> lists_;
};

template <class T>
Arguments::Named<T> named(const char* name, T value) {
  return {name, std::move(value)};
}

// An op. A handle: belongs to its runtime, copies freely.
class Function {
 public:
  explicit Function(opdock_function* function) : function_(function) {}

  std::string schema() const { return opdock_function_schema(function_); }
  std::string doc() const { return opdock_function_doc(function_); }
  opdock_function* get() const { return function_; }
  void prepare(Device device) const {
    detail::checked(
        [&](char* text, uint32_t size) { return opdock_prepare(function_, device, text, size); });
  }

  // Calls with fresh outputs of the host's. Arguments: TensorView, OwnedTensor, numbers, bool,
  // texts, Dtype, Device, std::vector and std::optional of them, std::nullopt, named(…).
  template <class... Args>
  std::vector<OwnedTensor> operator()(const Args&... args) const {
    uint32_t fresh = 0;
    opdock_function_results(function_, &fresh, nullptr);
    std::vector<opdock_tensor*> outputs(fresh, nullptr);
    call(nullptr, Arguments(args...), outputs);
    std::vector<OwnedTensor> results;
    for (opdock_tensor* output : outputs) results.emplace_back(output);
    return results;
  }
  // Calls with the caller's outputs. options may be NULL.
  template <class... Args>
  void into(const std::vector<TensorView>& outputs, const opdock_call_options* options,
            const Args&... args) const {
    std::vector<opdock_tensor> tensors;
    for (const TensorView& output : outputs) tensors.push_back(output.get());
    std::vector<opdock_tensor*> pointers;
    for (opdock_tensor& tensor : tensors) pointers.push_back(&tensor);
    call(options, Arguments(args...), pointers);
  }

 private:
  void call(const opdock_call_options* options, const Arguments& arguments,
            std::vector<opdock_tensor*>& outputs) const {
    uint32_t count = 0;
    opdock_function_params(function_, &count);
    std::vector<opdock_value> bound(count);
    detail::checked([&](char* text, uint32_t size) {
      return opdock_bind(function_, arguments.positional().data(),
                         static_cast<uint32_t>(arguments.positional().size()),
                         arguments.names().data(), arguments.named().data(),
                         static_cast<uint32_t>(arguments.named().size()), bound.data(), text, size);
    });
    detail::checked([&](char* text, uint32_t size) {
      return opdock_invoke(function_, options, bound.data(), count, outputs.data(),
                           static_cast<uint32_t>(outputs.size()), text, size);
    });
  }

  opdock_function* function_;
};

// Finds plugins and calls their ops. Its functions must not be used after it.
class Runtime {
 public:
  explicit Runtime(const opdock_options* options = nullptr) {
    opdock_runtime* made = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_runtime_create(options, &made, text, size);
    });
    runtime_.reset(made);
  }
  // Only the plugins in these folders or files, colon-separated.
  explicit Runtime(const std::string& plugin_path) : Runtime(with_path(plugin_path).get()) {}

  opdock_runtime* get() const { return runtime_.get(); }
  // An op by name, or by "plugin/op".
  Function function(const std::string& name) const {
    opdock_function* found = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_get_function(runtime_.get(), name.c_str(), &found, text, size);
    });
    return Function(found);
  }
  // opdock_list_json.
  std::string list_json(bool rescan = false) const {
    char* json = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_list_json(runtime_.get(), rescan ? 1 : 0, &json, text, size);
    });
    std::unique_ptr<char, void (*)(void*)> owned(json, opdock_free);
    return json;
  }

 private:
  static std::unique_ptr<opdock_options> with_path(const std::string& path) {
    auto options = std::make_unique<opdock_options>();
    options->struct_size = sizeof *options;
    options->plugin_path = path.c_str();
    return options;
  }
  struct Destroy {
    void operator()(opdock_runtime* runtime) const { opdock_runtime_destroy(runtime); }
  };
  std::unique_ptr<opdock_runtime, Destroy> runtime_;
};

}  // namespace opdock
#endif  // OPDOCK_OPDOCK_HPP_

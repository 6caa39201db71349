// opdock/opdock.hpp: the host for programs in C++17, over opdock.h. Header-only; link libopdock.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Runtime runtime;
//   opdock::Function axpy = runtime.function("axpy");
//   std::vector<float> x(8, 1), y(8, 2);
//   opdock::TensorView tx(x.data(), {8}), ty(y.data(), {8});
//   opdock::ResultList z = axpy(tx, ty, opdock::named("a", 2.0));
//   float first = z[0].data<float>()[0];
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

// A tensor over memory that the program owns, which must outlive the calls that use it. Movable and
// copyable; a copy views the same memory.
class TensorView {
 public:
  // strides: in elements, one for each dimension. Throws an Error if their number is wrong.
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
  // A contiguous tensor of T's dtype.
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

// A tensor that a call has returned. It belongs to the ResultList that it is taken from.
class ResultTensor {
 public:
  explicit ResultTensor(const opdock_tensor* tensor) : tensor_(tensor) {}
  const opdock_tensor& get() const { return *tensor_; }
  Dtype dtype() const { return tensor_->dtype; }
  int32_t ndim() const { return tensor_->ndim; }
  int64_t size(int32_t dimension) const { return tensor_->shape[dimension]; }
  // Returns the address of the first element. Throws an Error if T is not the element type.
  template <class T>
  T* data() const {
    if (dtype() != dtype_of<T>()) {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  "data<" + dtype_of<T>().name() + ">() of a tensor of " + dtype().name());
    }
    return reinterpret_cast<T*>(static_cast<char*>(tensor_->data) + tensor_->byte_offset);
  }

 private:
  const opdock_tensor* tensor_;
};

// A reference to an object that an op has made. Copies share it; the last copy,
// including those that plugins hold, destroys it.
class ObjectRef {
 public:
  // Adds a reference to `object`.
  explicit ObjectRef(opdock_object* object) : object_(object) { object_->retain(object_); }
  ObjectRef(const ObjectRef& other) : ObjectRef(other.object_) {}
  ObjectRef& operator=(ObjectRef other) {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectRef() { object_->release(object_); }

  opdock_object* get() const { return object_; }
  std::string type() const { return object_->type_id; }
  uint32_t version() const { return object_->version; }
  Device device() const { return object_->device; }

 private:
  opdock_object* object_;
};

// The results of a call, in the schema's order; frees what the host has allocated for them.
// Movable. A result that is the program's own tensor (an argument that the op returns, or an output
// that was passed in) is None here, because the program has that tensor already.
class ResultList {
 public:
  explicit ResultList(size_t count) : values_(count) {}
  ResultList(ResultList&& other) noexcept : values_(std::move(other.values_)) {}
  ResultList& operator=(ResultList&& other) noexcept {
    values_.swap(other.values_);
    return *this;
  }
  ~ResultList() {
    for (opdock_value& value : values_) opdock_value_free(&value);
  }

  size_t size() const { return values_.size(); }
  opdock_value* data() { return values_.data(); }
  const opdock_value& value(size_t i) const { return values_.at(i); }
  bool is_none(size_t i) const { return value(i).tag == OPDOCK_TAG_NONE; }

  // Each of these returns result i, and throws if the result has another type.
  ResultTensor operator[](size_t i) const {
    return ResultTensor(expect(value(i), OPDOCK_TAG_TENSOR, "a tensor").as.tensor);
  }
  std::vector<ResultTensor> list(size_t i) const {
    const opdock_list& list = *expect(value(i), OPDOCK_TAG_LIST, "a list").as.list;
    std::vector<ResultTensor> tensors;
    for (uint64_t k = 0; k < list.count; ++k) tensors.emplace_back(list.data[k].as.tensor);
    return tensors;
  }
  int64_t integer(size_t i) const { return expect(value(i), OPDOCK_TAG_INT, "an int").as.i64; }
  double real(size_t i) const { return expect(value(i), OPDOCK_TAG_FLOAT, "a float").as.f64; }
  bool boolean(size_t i) const { return expect(value(i), OPDOCK_TAG_BOOL, "a bool").as.i64 != 0; }
  ObjectRef object(size_t i) const {
    return ObjectRef(expect(value(i), OPDOCK_TAG_OBJECT, "an object").as.object);
  }

 private:
  static const opdock_value& expect(const opdock_value& value, uint32_t tag, const char* wanted) {
    if (value.tag == tag) return value;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                detail::concat("found a result of value tag ", value.tag, ", wanted ", wanted));
  }
  std::vector<opdock_value> values_;
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

  // A named argument, made by named().
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
  opdock_value value(std::nullopt_t) { return tagged(OPDOCK_TAG_NONE); }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  opdock_value value(T number) {
    opdock_value v = tagged(std::is_same_v<T, bool> ? OPDOCK_TAG_BOOL : OPDOCK_TAG_INT);
    v.as.i64 = static_cast<int64_t>(number);
    return v;
  }
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  opdock_value value(T number) {
    opdock_value v = tagged(OPDOCK_TAG_FLOAT);
    v.as.f64 = static_cast<double>(number);
    return v;
  }
  opdock_value value(std::string_view text) {
    strings_.push_back({text.data(), text.size()});
    opdock_value v = tagged(OPDOCK_TAG_STRING);
    v.as.str = &strings_.back();
    return v;
  }
  opdock_value value(const char* text) { return value(std::string_view(text)); }
  opdock_value value(const std::string& text) { return value(std::string_view(text)); }
  opdock_value value(Dtype dtype) {
    opdock_value v = tagged(OPDOCK_TAG_DTYPE);
    v.as.dtype = dtype;
    return v;
  }
  opdock_value value(Device device) {
    opdock_value v = tagged(OPDOCK_TAG_DEVICE);
    v.as.device = device;
    return v;
  }
  opdock_value value(const TensorView& tensor) {
    tensors_.push_back(tensor.get());
    opdock_value v = tagged(OPDOCK_TAG_TENSOR);
    v.flags = tensor.read_only() ? OPDOCK_VALUE_READ_ONLY : 0;
    v.as.tensor = &tensors_.back();
    return v;
  }
  opdock_value value(const ResultTensor& tensor) {
    opdock_value v = tagged(OPDOCK_TAG_TENSOR);
    v.as.tensor = &tensor.get();
    return v;
  }
  opdock_value value(const ObjectRef& object) {
    opdock_value v = tagged(OPDOCK_TAG_OBJECT);
    v.as.object = object.get();
    return v;
  }
  opdock_value value(opdock_generator* generator) {
    opdock_value v = tagged(OPDOCK_TAG_GENERATOR);
    v.as.generator = generator;
    return v;
  }
  template <class T>
  opdock_value value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : tagged(OPDOCK_TAG_NONE);
  }
  template <class T>
  opdock_value value(const std::vector<T>& list) {
    std::vector<opdock_value> items;
    for (const T& item : list) items.push_back(value(item));
    items_.push_back(std::move(items));
    lists_.push_back({items_.back().data(), items_.back().size()});
    opdock_value v = tagged(OPDOCK_TAG_LIST);
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

// Passes an argument by its name in the schema: op(x, named("a", 2.0)).
template <class T>
Arguments::Named<T> named(const char* name, T value) {
  return {name, std::move(value)};
}

// A handle of an op. It belongs to its runtime and may be copied.
class Function {
 public:
  explicit Function(opdock_function* function) : function_(function) {}

  // Returns what the op declares: schema, parameters, results, shape rules, gradients.
  const opdock_function_info& info() const { return *opdock_describe(function_); }
  std::string schema() const { return info().schema; }
  std::string doc() const { return opdock_function_doc(function_); }
  opdock_function* get() const { return function_; }
  // Calls opdock_prepare.
  void prepare(Device device) const {
    detail::checked(
        [&](char* text, uint32_t size) { return opdock_prepare(function_, device, text, size); });
  }

  // Calls the op with fresh tensors from the host. A result that is an argument is None. Arguments
  // may be TensorView, ResultTensor, numbers, bool, texts, Dtype, Device, ObjectRef,
  // opdock_generator*, std::vector and std::optional of these, std::nullopt, and named(…).
  template <class... Args>
  ResultList operator()(const Args&... args) const {
    ResultList results(info().num_results);
    call(nullptr, Arguments(args...), &results);
    return results;
  }
  // Calls the op with the caller's tensors for the results that are fresh tensors, one after the
  // other (none of which is a list), and returns the other results. options may be NULL.
  template <class... Args>
  ResultList into(const std::vector<TensorView>& outputs, const opdock_call_options* options,
                  const Args&... args) const {
    ResultList results(info().num_results);
    std::deque<opdock_tensor> tensors;
    for (size_t i = 0; i < results.size() && tensors.size() < outputs.size(); ++i) {
      const opdock_result& result = info().results[i];
      if (result.tag != OPDOCK_TAG_TENSOR || result.param >= 0) continue;
      const TensorView& output = outputs[tensors.size()];
      tensors.push_back(output.get());
      results.data()[i].tag = OPDOCK_TAG_TENSOR;
      results.data()[i].flags = output.read_only() ? OPDOCK_VALUE_READ_ONLY : 0;
      results.data()[i].as.tensor = &tensors.back();
    }
    if (tensors.size() < outputs.size()) {
      throw Error(
          OPDOCK_INVALID_ARGUMENT,
          detail::concat(info().name, ": found ", outputs.size(),
                         outputs.size() == 1 ? " output" : " outputs", ", wanted at most ",
                         tensors.size(), ", one for each result with fresh tensors; pass fewer"));
    }
    call(options, Arguments(args...), &results);
    return results;
  }

 private:
  void call(const opdock_call_options* options, const Arguments& arguments,
            ResultList* results) const {
    const uint32_t count = info().num_params;
    std::vector<opdock_value> bound(count);
    detail::checked([&](char* text, uint32_t size) {
      return opdock_bind(function_, arguments.positional().data(),
                         static_cast<uint32_t>(arguments.positional().size()),
                         arguments.names().data(), arguments.named().data(),
                         static_cast<uint32_t>(arguments.named().size()), bound.data(), text, size);
    });
    detail::checked([&](char* text, uint32_t size) {
      return opdock_invoke(function_, options, bound.data(), count, results->data(),
                           static_cast<uint32_t>(results->size()), text, size);
    });
    // A tensor that is not owned belongs to `arguments` or to into(), which are destroyed soon.
    for (size_t i = 0; i < results->size(); ++i) {
      opdock_value& value = results->data()[i];
      if ((value.flags & OPDOCK_VALUE_OWNED) == 0 && value.tag == OPDOCK_TAG_TENSOR) value = {};
    }
  }

  opdock_function* function_;
};

// Finds plugins and calls their ops. Its Function handles must not be used after it is destroyed.
class Runtime {
 public:
  explicit Runtime(const opdock_options* options = nullptr) {
    opdock_runtime* made = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_runtime_create(options, &made, text, size);
    });
    runtime_.reset(made);
  }
  // Uses only the plugins in these folders or files, colon-separated.
  explicit Runtime(const std::string& plugin_path) : Runtime(with_path(plugin_path).get()) {}

  opdock_runtime* get() const { return runtime_.get(); }
  // Finds an op by name, or by "plugin/op".
  Function function(const std::string& name) const {
    opdock_function* found = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_get_function(runtime_.get(), name.c_str(), &found, text, size);
    });
    return Function(found);
  }
  // Calls opdock_manual_seed.
  void manual_seed(uint64_t seed) const {
    detail::checked([&](char* text, uint32_t size) {
      return opdock_manual_seed(runtime_.get(), seed, text, size);
    });
  }
  // Calls opdock_list_json.
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

// opdock/tensor.hpp: a view of a tensor argument, checks on it, and the layout of an output, for
// plugin.hpp. C++17, header-only.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_TENSOR_HPP_
#define OPDOCK_TENSOR_HPP_

#include <initializer_list>
#include <tuple>

#include "opdock/overlap.hpp"
#include "opdock/types.hpp"

namespace opdock {

namespace detail {
[[gnu::cold, gnu::noinline]] inline std::string list_text(const int64_t* values, int32_t count) {
  std::string text = "[";
  for (int32_t i = 0; i < count; ++i) text += concat(i > 0 ? ", " : "", values[i]);
  text += ']';
  return text;
}
}  // namespace detail

// A contiguous tensor that plan asks the host to allocate: dtype, shape and alignment.
struct Layout : opdock_output {
  // At most OPDOCK_MAX_NDIM sizes, none negative.
  Layout(Dtype element, const int64_t* sizes, int32_t count) : opdock_output{} {
    dtype = element;
    for (int32_t i = 0; i < count; ++i) append_size(sizes[i]);
    check_size();
  }
  Layout(Dtype element, std::initializer_list<int64_t> sizes)
      : Layout(element, sizes.begin(), static_cast<int32_t>(sizes.size())) {}

  Layout with_dtype(Dtype element) const {
    Layout other = *this;
    other.dtype = element;
    return other;
  }
  // Returns this layout in memory that begins at a multiple of `bytes`, a power of two of at most
  // 2^30.
  Layout with_alignment(uint64_t bytes) const {
    Layout other = *this;
    other.alignment = bytes;
    return other;
  }
  // Returns this layout with one size replaced; a negative dimension counts from the end.
  Layout with_size(int32_t dimension, int64_t size) const {
    Layout other = *this;
    int32_t at = dimension < 0 ? dimension + ndim : dimension;
    if (at < 0 || at >= ndim || size < 0) {
      throw Error(OPDOCK_INTERNAL, detail::concat("an output of ", ndim, " dimensions has no size ",
                                                  size, " at ", dimension));
    }
    other.shape[at] = size;
    other.check_size();
    return other;
  }

 private:
  void append_size(int64_t size) {
    if (size < 0) {
      throw Error(OPDOCK_INTERNAL, detail::concat("found size ", size, " in dimension ", ndim,
                                                  " of an output, wanted 0 or more"));
    }
    if (ndim >= OPDOCK_MAX_NDIM) {
      throw Error(OPDOCK_INTERNAL, detail::concat("found an output of more than ", OPDOCK_MAX_NDIM,
                                                  " dimensions, wanted at most ", OPDOCK_MAX_NDIM));
    }
    shape[ndim++] = size;
  }
  void check_size() const {
    if (!views::has_elements(ndim, shape)) return;
    int64_t count = 1;
    for (int32_t i = 0; i < ndim; ++i) {
      if (!__builtin_mul_overflow(count, shape[i], &count)) continue;
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  detail::concat("an output of shape ", detail::list_text(shape, ndim),
                                 " would have more than 2^63 elements; pass smaller arguments"));
    }
  }
};

// A view of a tensor argument or output; as cheap to copy as a pointer. The host has checked its
// sizes, strides and device.
class Tensor {
 public:
  explicit Tensor(const opdock_tensor* tensor, uint32_t flags = 0)
      : tensor_(tensor), flags_(flags) {}

  const opdock_tensor* get() const { return tensor_; }
  int32_t ndim() const { return tensor_->ndim; }
  Dtype dtype() const { return tensor_->dtype; }
  Device device() const { return tensor_->device; }
  const int64_t* shape() const { return tensor_->shape; }
  const int64_t* strides() const { return tensor_->strides; }  // in elements
  // False while planning a call whose tensors are shapes only: then data() must not be read.
  bool has_data() const { return (flags_ & OPDOCK_VALUE_NO_DATA) == 0; }

  // Size and stride of one dimension; negative counts from the end.
  int64_t size(int32_t dimension) const { return tensor_->shape[at(dimension)]; }
  int64_t stride(int32_t dimension) const { return tensor_->strides[at(dimension)]; }
  bool is_empty() const { return !views::has_elements(ndim(), shape()); }
  int64_t numel() const {
    if (is_empty()) return 0;  // the product of the other sizes may overflow
    int64_t count = 1;
    for (int32_t i = 0; i < ndim(); ++i) count *= shape()[i];
    return count;
  }
  // Whether the tensor is row-major without gaps. Strides of dimensions of size 1, and of empty
  // tensors, do not matter.
  bool is_contiguous() const {
    if (is_empty()) return true;
    int64_t stride = 1;
    for (int32_t i = ndim() - 1; i >= 0; --i) {
      if (shape()[i] != 1 && strides()[i] != stride) return false;
      stride *= shape()[i];
    }
    return true;
  }

  // Returns the address of the first element. T must be the element type (void or a byte type reads
  // any dtype).
  template <class T>
  T* data() const {
    using U = std::remove_cv_t<T>;
    if constexpr (!std::is_void_v<U> && !std::is_same_v<U, char> &&
                  !std::is_same_v<U, unsigned char>) {
      if (dtype() != dtype_of<U>()) {
        throw Error(OPDOCK_INTERNAL, detail::concat("data<", dtype_of<U>().name(),
                                                    ">() of a tensor of ", dtype().name()));
      }
    }
    return static_cast<T*>(raw());
  }
  // Returns the address of the first element, of any dtype.
  void* raw() const { return static_cast<char*>(tensor_->data) + tensor_->byte_offset; }

  // Returns a layout of the same dtype and shape: the shape rule "like x".
  Layout like() const { return Layout(dtype(), shape(), ndim()); }
  std::string shape_text() const { return detail::list_text(shape(), ndim()); }

 private:
  int32_t at(int32_t dimension) const {
    int32_t index = dimension < 0 ? dimension + ndim() : dimension;
    if (index < 0 || index >= ndim()) {
      throw Error(OPDOCK_INTERNAL, detail::concat("dimension ", dimension, " of a tensor of ",
                                                  ndim(), " dimensions: check ndim() first"));
    }
    return index;
  }

  const opdock_tensor* tensor_;
  uint32_t flags_;
};

// Returns whether two tensors share bytes. The answer is exact, except that it is true in the rare
// cases that take too long to decide (overlap.hpp).
inline bool may_overlap(Tensor a, Tensor b) {
  return views::shared_memory(*a.get(), *b.get()) != views::Overlap::kNone;
}

// Checks on one argument. Each check throws an Error that names the argument, what was found and
// what was wanted. Checks of addresses pass while planning without data.
class Check {
 public:
  Check(Tensor tensor, const char* name) : x_(tensor), name_(name) {}

  template <class... Dtypes>
  const Check& dtype(Dtype first, Dtypes... others) const {
    const Dtype wanted[] = {first, others...};
    std::string names;
    for (Dtype one : wanted) {
      if (x_.dtype() == one) return *this;
      names += detail::concat(names.empty() ? "" : ", ", one.name());
    }
    fail(OPDOCK_UNSUPPORTED, detail::concat("dtype ", x_.dtype().name()), names, "convert it");
  }
  const Check& same_dtype_as(Tensor other, const char* other_name = nullptr) const {
    if (x_.dtype() == other.dtype()) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("dtype ", x_.dtype().name()),
         detail::concat(other.dtype().name(), as(other_name)), "convert one of the two");
  }
  const Check& ndim(int32_t wanted) const { return ndim(wanted, wanted); }
  const Check& ndim(int32_t least, int32_t most) const {
    if (x_.ndim() >= least && x_.ndim() <= most) return *this;
    fail(OPDOCK_INVALID_ARGUMENT,
         detail::concat(x_.ndim(), x_.ndim() == 1 ? " dimension" : " dimensions", ", shape ",
                        x_.shape_text()),
         least == most             ? detail::concat(least)
         : most >= OPDOCK_MAX_NDIM ? detail::concat(least, " or more")
                                   : detail::concat(least, " to ", most),
         "reshape it");
  }
  const Check& ndim_at_least(int32_t least) const { return ndim(least, OPDOCK_MAX_NDIM); }
  const Check& shape(std::initializer_list<int64_t> wanted) const {
    int32_t count = static_cast<int32_t>(wanted.size());
    bool same = x_.ndim() == count;
    for (int32_t i = 0; same && i < count; ++i) same = x_.shape()[i] == wanted.begin()[i];
    if (same) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("shape ", x_.shape_text()),
         detail::list_text(wanted.begin(), count), "reshape or slice it");
  }
  // Checks one size; a negative dimension counts from the end.
  const Check& size(int32_t dimension, int64_t wanted) const {
    ndim_at_least(dimension < 0 ? -dimension : dimension + 1);
    if (x_.size(dimension) == wanted) return *this;
    fail(OPDOCK_INVALID_ARGUMENT,
         detail::concat("size ", x_.size(dimension), " in dimension ", dimension, ", shape ",
                        x_.shape_text()),
         detail::concat(wanted), "reshape or slice it");
  }
  const Check& same_shape_as(Tensor other, const char* other_name = nullptr) const {
    bool same = x_.ndim() == other.ndim();
    for (int32_t i = 0; same && i < x_.ndim(); ++i) same = x_.shape()[i] == other.shape()[i];
    if (same) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("shape ", x_.shape_text()),
         detail::concat(other.shape_text(), as(other_name)), "reshape one of the two");
  }
  const Check& same_device_as(Tensor other, const char* other_name = nullptr) const {
    if (x_.device() == other.device()) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("device ", x_.device().name()),
         detail::concat(other.device().name(), as(other_name)), "move one of the two");
  }
  // Checks that the tensor has the other one's dtype, device and shape.
  const Check& like(Tensor other, const char* other_name = nullptr) const {
    return same_dtype_as(other, other_name)
        .same_device_as(other, other_name)
        .same_shape_as(other, other_name);
  }
  // Checks that the tensor can be repeated to the other one's shape: compared from the last
  // dimension on, each of its sizes is 1 or the other's.
  const Check& broadcasts_to(Tensor other, const char* other_name = nullptr) const {
    bool fits = x_.ndim() <= other.ndim();
    for (int32_t i = 1; fits && i <= x_.ndim(); ++i)
      fits = x_.size(-i) == other.size(-i) || x_.size(-i) == 1;
    if (fits) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("shape ", x_.shape_text()),
         detail::concat("one that broadcasts to ",
                        other_name != nullptr ? other_name : "another argument", "'s ",
                        other.shape_text()),
         "give its dimensions size 1 where one serves all");
  }
  const Check& not_empty() const {
    if (x_.numel() != 0) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("shape ", x_.shape_text()), "at least one element",
         "skip the call for empty tensors");
  }
  // contiguous() and contiguous_last_dim() accept a tensor without elements, with any strides.
  const Check& contiguous() const {
    if (x_.is_contiguous()) return *this;
    fail(OPDOCK_UNSUPPORTED, strides_text(), "contiguous rows", kMakeContiguous);
  }
  const Check& contiguous_last_dim() const {
    if (x_.ndim() == 0 || x_.size(-1) <= 1 || x_.stride(-1) == 1 || x_.is_empty()) return *this;
    fail(OPDOCK_UNSUPPORTED, strides_text(), "stride 1 in the last dimension", kMakeContiguous);
  }
  // Checks that the address of the first element, if there is one, is a multiple of `bytes`.
  const Check& aligned(uint64_t bytes) const {
    uintptr_t address = reinterpret_cast<uintptr_t>(x_.raw());
    if (!x_.has_data() || address % bytes == 0 || x_.is_empty()) return *this;
    fail(OPDOCK_UNSUPPORTED,
         detail::concat("an address ", address % bytes, " past a multiple of ", bytes),
         detail::concat("one aligned to ", bytes, " bytes"), "copy it first");
  }
  // Checks that the address is a multiple of the size of an element.
  const Check& aligned() const { return aligned(static_cast<uint64_t>(x_.dtype().bytes())); }
  const Check& no_overlap_with(Tensor other, const char* other_name = nullptr) const {
    if (!x_.has_data() || !other.has_data() || !may_overlap(x_, other)) return *this;
    fail(OPDOCK_INVALID_ARGUMENT, detail::concat("memory shared with ", another(other_name)),
         "memory of its own", "copy one of the two");
  }
  // Checks an output: it must be the other tensor, with the same elements at the same positions, or
  // share no memory with it.
  const Check& in_place_or_apart_from(Tensor other, const char* other_name = nullptr) const {
    bool same = x_.raw() == other.raw() && x_.ndim() == other.ndim();
    for (int32_t i = 0; same && i < x_.ndim(); ++i) {
      const bool one = x_.shape()[i] == 1;
      same = x_.shape()[i] == other.shape()[i] && (one || x_.strides()[i] == other.strides()[i]);
    }
    return same ? *this : no_overlap_with(other, other_name);
  }

 private:
  // The Python package replaces this text with how it is done in the argument's library.
  static constexpr const char* kMakeContiguous = "make it contiguous first";

  [[gnu::cold, gnu::noinline]] static std::string another(const char* name) {
    return name != nullptr ? detail::concat("'", name, "'") : std::string("another argument");
  }
  [[gnu::cold, gnu::noinline]] static std::string as(const char* name) {
    return detail::concat(", as ", another(name), " has");
  }
  [[gnu::cold, gnu::noinline]] std::string strides_text() const {
    return detail::concat("strides ", detail::list_text(x_.strides(), x_.ndim()), " for shape ",
                          x_.shape_text());
  }
  [[noreturn, gnu::cold, gnu::noinline]] void fail(opdock_status status, const std::string& found,
                                                   const std::string& wanted,
                                                   const char* advice) const {
    throw Error(status, detail::concat("argument '", name_, "': found ", found, ", wanted ", wanted,
                                       "; ", advice));
  }

  Tensor x_;
  const char* name_;
};

inline Check check(Tensor tensor, const char* name) {
  return Check(tensor, name);
}

// Throws an Error, OPDOCK_INVALID_ARGUMENT, that names the argument and its value, unless is_good.
// wanted: which values are good and what to do, such as "a share, from 0 to 1; 0.1 is usual".
inline void check_number(double value, const char* name, bool is_good, const char* wanted) {
  if (is_good) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              detail::concat("argument '", name, "': found ", value, ", wanted ", wanted));
}

// ------------------------------------------------------------------------------ dtype dispatch

// Carries a type to a generic lambda: `using T = typename decltype(tag)::type;`.
template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the T among Ts that is x's element type; otherwise throws an Error
// that names the argument and what it may be.
template <class... Ts, class F>
void dispatch(Tensor x, const char* name, F&& f) {
  bool found = ((x.dtype() == dtype_of<Ts>() ? (f(TypeTag<Ts>{}), true) : false) || ...);
  if (!found) check(x, name).dtype(dtype_of<Ts>()...);
}

// The floating types an op usually has: float, half, bfloat16, and double.
template <class F>
void dispatch_floating(Tensor x, const char* name, F&& f) {
  dispatch<float, half, bfloat16, double>(x, name, static_cast<F&&>(f));
}

}  // namespace opdock
#endif  // OPDOCK_TENSOR_HPP_

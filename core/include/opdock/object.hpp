// opdock/object.hpp: objects that ops make and take: state that outlives a call. C++17,
// header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   struct Counter {
//     static constexpr char kType[] = "counter";       // of Object(counter) in the schema
//     static constexpr uint32_t kVersion = 1;
//     explicit Counter(int64_t start);
//   };
//   void make(Call& call, Results results, int64_t start) {
//     results.set(0, make_object<Counter>(call.device(), start));
//   }
//   void next(Call&, Results results, Object<Counter> counter) { results.set(0, ++counter->value); }
//
// T's destructor runs when the last reference is released, on any thread, and also in a child
// process that was forked meanwhile: there it must not wait for a thread (OPDOCK-P-9).
#ifndef OPDOCK_OBJECT_HPP_
#define OPDOCK_OBJECT_HPP_

#include <new>
#include <utility>

#include "opdock/types.hpp"

namespace opdock {

namespace detail {

// An opdock_object followed by its T.
template <class T>
struct Boxed {
  opdock_object object{};  // first, so that its address is that of the Boxed
  uint32_t references = 1;
  T value;

  template <class... Args>
  explicit Boxed(Device device, Args&&... args) : value(std::forward<Args>(args)...) {
    object.struct_size = sizeof object;
    object.version = T::kVersion;
    object.type_id = T::kType;
    object.device = device;
    object.retain = [](opdock_object* self) {
      __atomic_fetch_add(&of(self)->references, 1, __ATOMIC_RELAXED);
    };
    object.release = [](opdock_object* self) {
      if (__atomic_fetch_sub(&of(self)->references, 1, __ATOMIC_ACQ_REL) == 1) delete of(self);
    };
  }
  static Boxed* of(opdock_object* self) { return reinterpret_cast<Boxed*>(self); }
};

}  // namespace detail

// A reference to an object whose type is T's. Movable; the last reference destroys the object.
template <class T>
class Object {
 public:
  // Adds a reference to an argument's object. The host has checked the type; this checks the
  // version.
  explicit Object(opdock_object* object) : object_(object) {
    if (object->version != T::kVersion) {
      object_ = nullptr;
      throw Error(
          OPDOCK_UNSUPPORTED,
          detail::concat("found an object of type ", T::kType, " in version ", object->version,
                         ", wanted version ", T::kVersion, "; make it by the plugin that uses it"));
    }
    object->retain(object);
  }
  // Takes over the reference that a new Boxed begins with.
  explicit Object(detail::Boxed<T>* made) : object_(&made->object) {}
  Object(Object&& other) noexcept : object_(other.release()) {}
  Object& operator=(Object&& other) noexcept {
    Object(std::move(other)).swap(*this);
    return *this;
  }
  ~Object() {
    if (object_ != nullptr) object_->release(object_);
  }

  T& operator*() const { return detail::Boxed<T>::of(object_)->value; }
  T* operator->() const { return &**this; }
  opdock_object* get() const { return object_; }
  // Transfers the reference to the caller.
  opdock_object* release() { return std::exchange(object_, nullptr); }

 private:
  void swap(Object& other) { std::swap(object_, other.object_); }
  opdock_object* object_;
};

// Makes an object that lies on `device`, with a T made from these arguments.
template <class T, class... Args>
Object<T> make_object(Device device, Args&&... args) {
  return Object<T>(new detail::Boxed<T>(device, std::forward<Args>(args)...));
}

}  // namespace opdock
#endif  // OPDOCK_OBJECT_HPP_

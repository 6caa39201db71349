// An object of each thread, which keeps memory from call to call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace opdock {

// T is default constructible. It is one class of objects: each use has a T of its own.
template <class T>
class ThreadOwn {
 public:
  // Returns the calling thread's object, which is made when the thread first asks for it; NULL if
  // the thread is ending, because a thread may make calls while its variables are being destroyed.
  static T* get() {
    T* const known = mine_;
    return known != nullptr ? known : make();
  }

 private:
  struct Owner {
    ~Owner() {
      has_ended_ = true;
      delete std::exchange(mine_, nullptr);
    }
  };

  [[gnu::cold, gnu::noinline]] static T* make() {
    if (has_ended_) return nullptr;
    static thread_local Owner owner;
    (void)owner;
    return mine_ = new T;
  }

  // These have no destructors, so that they can be read while a thread ends.
  static inline constinit thread_local T* mine_ = nullptr;
  static inline constinit thread_local bool has_ended_ = false;
};

}  // namespace opdock

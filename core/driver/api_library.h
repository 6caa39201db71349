// A shared library, such as a driver's, that is opened once per process, and the table of functions
// that is filled from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace opdock {

// Looks up functions for a table, and remembers the first required one that is missing.
class ApiSymbols {
 public:
  explicit ApiSymbols(void* library) : library_(library) {}

  // Returns false and sets *out to NULL if the library has no such function.
  template <class F>
  bool get(const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(library_, name));
    return *out != nullptr;
  }
  template <class F>
  void need(const char* name, F* out) {
    if (!get(name, out) && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }  // NULL if none is missing

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// Api: a struct of function pointers. Never destroyed, and the library is never closed.
// Thread-safe.
template <class Api>
class ApiLibrary {
 public:
  // Sets *out to the table, or to NULL on failure; the first call decides. open(&library) opens the
  // library, fill(&symbols, &api) fills in the table, and too_old(name) returns the error's text if
  // function `name` is missing.
  template <class Open, class Fill, class TooOld>
  Status get(const Open& open, const Fill& fill, const TooOld& too_old, const Api** out) {
    *out = nullptr;
    const ForkAwareGuard guard(&lock_);
    if (!guard) {  // a constructor of the library itself calls get()
      return {OPDOCK_INCOMPATIBLE, to_text(deadlock_reason("the driver's library opened"))};
    }
    if (!tried_) {
      void* library = nullptr;
      Api api{};
      Status opened;
      if (guard.was_poisoned()) {
        opened = {OPDOCK_INCOMPATIBLE,
                  to_text(poisoned_reason("the driver's library open, or no thread opening it"))};
      } else {
        opened = open(&library);
      }
      if (opened.ok()) {
        ApiSymbols symbols(library);
        fill(&symbols, &api);
        if (symbols.missing() != nullptr)
          opened = {OPDOCK_INCOMPATIBLE, too_old(std::string(symbols.missing()))};
      }
      const NoFork no_fork;
      library_ = library;
      api_ = api;
      opened_ = std::move(opened);
      tried_ = true;
    }
    if (opened_.ok()) *out = &api_;
    return opened_;
  }

  // Call only after get() has succeeded.
  void* symbol(const char* name) const { return dlsym(library_, name); }

 private:
  ForkAwareLock lock_;  // guards the next members
  bool tried_ = false;
  void* library_ = nullptr;
  Api api_{};
  Status opened_;
};

}  // namespace opdock

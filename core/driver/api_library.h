// A driver's library, opened once in a process, and the table of functions that is filled from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/turn.h"

namespace opdock {

// Looks functions up for a table, and notes the first that is missing of those it cannot be
// without.
class ApiSymbols {
 public:
  explicit ApiSymbols(void* library) : library_(library) {}

  // False and NULL if there is none of that name.
  template <class F>
  bool get(const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(library_, name));
    return *out != nullptr;
  }
  template <class F>
  void need(const char* name, F* out) {
    if (!get(name, out) && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }  // NULL: none

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// Api: a struct of function pointers. Never destroyed and never closed. Thread-safe.
template <class Api>
class ApiLibrary {
 public:
  // *out: the table, or NULL; the first call decides. open(&library) opens the library;
  // fill(&symbols, &api) fills the table in; too_old(name) says what it means that `name` is
  // missing.
  template <class Open, class Fill, class TooOld>
  Status get(const Open& open, const Fill& fill, const TooOld& too_old, const Api** out) {
    *out = nullptr;
    const Taken turn(&turn_);
    if (!turn) {  // the library's own constructors ask
      return {OPDOCK_INCOMPATIBLE, to_text(within_itself("the driver's library opened"))};
    }
    if (!tried_) {
      void* library = nullptr;
      Api api{};
      Status opened;
      if (turn.was_left()) {
        opened = {OPDOCK_INCOMPATIBLE,
                  to_text(left_by_fork("the driver's library open, or no thread opening it"))};
      } else {
        opened = open(&library);
      }
      if (opened.ok()) {
        ApiSymbols symbols(library);
        fill(&symbols, &api);
        if (symbols.missing() != nullptr)
          opened = {OPDOCK_INCOMPATIBLE, too_old(std::string(symbols.missing()))};
      }
      const NoFork whole;
      library_ = library;
      api_ = api;
      opened_ = std::move(opened);
      tried_ = true;
    }
    if (opened_.ok()) *out = &api_;
    return opened_;
  }

  // After get() has given the table.
  void* symbol(const char* name) const { return dlsym(library_, name); }

 private:
  Turn turn_;  // of what follows
  bool tried_ = false;
  void* library_ = nullptr;
  Api api_{};
  Status opened_;
};

}  // namespace opdock

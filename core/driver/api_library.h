// A driver's library, opened once in a process, and the table of functions that is filled from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>

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
  // The table, or NULL and *problem (which may be NULL); the first call decides. open(&why) gives
  // the library, or NULL and why not; fill(&symbols, &api) fills the table in; too_old(name) says
  // what it means that `name` is missing.
  template <class Open, class Fill, class TooOld>
  const Api* get(const Open& open, const Fill& fill, const TooOld& too_old, std::string* problem) {
    const Taken turn(&turn_);
    if (!turn) {  // the library's own constructors ask
      if (problem != nullptr) *problem = to_text(within_itself("the driver's library opened"));
      return nullptr;
    }
    if (turn.was_left() && !tried_) {
      tried_ = true;
      problem_ = to_text(left_by_fork("the driver's library open, or nobody at it"));
    }
    if (!tried_) {
      library_ = open(&problem_);
      if (library_ != nullptr) {
        ApiSymbols symbols(library_);
        fill(&symbols, &api_);
        if (symbols.missing() != nullptr) problem_ = too_old(std::string(symbols.missing()));
      }
      tried_ = true;
    }
    if (problem_.empty()) return &api_;
    if (problem != nullptr) *problem = problem_;
    return nullptr;
  }

  // After get() has given the table.
  void* symbol(const char* name) const { return dlsym(library_, name); }

 private:
  Turn turn_;  // of what follows
  bool tried_ = false;
  void* library_ = nullptr;
  Api api_{};
  std::string problem_;
};

}  // namespace opdock

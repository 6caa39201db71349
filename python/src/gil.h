// Giving the GIL up and taking it back, and the edge where CPython calls this module.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <utility>

namespace opdock::python {

// Stops this thread for good; it goes with the process.
[[noreturn]] inline void stop_thread() {
  for (;;) pause();
}

// f(), in which the thread may ask for the GIL. One that does so when the interpreter is ending
// (a daemon thread) is ended by CPython before 3.14, which unwinds its stack: through destructors
// that must not throw, and past what libopdock has locked or not finished. Here it stops instead,
// as CPython 3.14 does it.
template <typename F>
[[gnu::always_inline]] inline decltype(auto) or_stop(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

[[gnu::noinline]] inline void take_gil(PyThreadState* state) noexcept {
  or_stop([state] { PyEval_RestoreThread(state); });
}

// Other Python threads run while this lives, if `wanted`. The GIL is held.
class GilRelease {
 public:
  explicit GilRelease(bool wanted = true) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) [[unlikely]]
      take_gil(state_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// The GIL for a hook, which libopdock calls with it or without, on threads of its own too. The
// interpreter is not ending yet.
class Gil {
 public:
  Gil() noexcept : state_(or_stop([] { return PyGILState_Ensure(); })) {}
  ~Gil() {
    or_stop([this] { PyGILState_Release(state_); });
  }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// The body of a function that CPython calls: f(), or NULL with a Python error set. CPython's frames
// are C, so nothing is thrown through them. What must not be destroyed without the GIL, as Python
// references of a call's Frame, lies outside of f.
template <typename F>
[[gnu::always_inline]] inline PyObject* guarded(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& problem) {
    PyErr_SetString(PyExc_RuntimeError, problem.what());
    return nullptr;
  }
}

}  // namespace opdock::python

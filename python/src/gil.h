// Releases and reacquires the GIL, and guards the functions that CPython calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <utility>

namespace opdock::python {

// Blocks this thread for ever; it ends with the process.
[[noreturn]] inline void stop_thread() {
  for (;;) pause();
}

// Calls f(), in which the thread may acquire the GIL. Before version 3.14, CPython ends a (daemon)
// thread that does so while the interpreter is shutting down, by unwinding its stack: through
// destructors that must not throw, and past libopdock's held locks and unfinished work. This
// function blocks such a thread instead, as CPython 3.14 does.
template <typename F>
[[gnu::always_inline]] inline decltype(auto) block_on_forced_unwind(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

[[gnu::noinline]] inline void take_gil(PyThreadState* state) noexcept {
  block_on_forced_unwind([state] { PyEval_RestoreThread(state); });
}

// Releases the GIL, if `wanted`, for the lifetime of this object. The GIL must be held.
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

// Acquires the GIL for a hook. libopdock calls hooks with or without the GIL, and also on its own
// threads. The interpreter must not be shutting down yet.
class Gil {
 public:
  Gil() noexcept : state_(block_on_forced_unwind([] { return PyGILState_Ensure(); })) {}
  ~Gil() {
    block_on_forced_unwind([this] { PyGILState_Release(state_); });
  }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Runs f(), the body of a function that CPython calls; returns its result, or NULL with a Python
// error set. CPython's frames are C, so no exception may pass through them. Objects that must not
// be destroyed without the GIL, such as a call's Frame with its Python references, must be outside
// of f.
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

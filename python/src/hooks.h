// Implements libopdock's hooks for Python: Ctrl-C, releasing the GIL while it waits, and
// references.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Sets the hooks of `options`. They are static, so they outlive every runtime.
void set_hooks(opdock_options* options);

// Raises the exception that a hook's Python code raised on this thread, now that the call that led
// to the hook has returned. Returns false if there is none. The GIL is held.
bool raise_kept_error();
// Returns whether a signal handler has raised an error. It is kept for this thread and raised when
// the interpreter continues. The GIL is held.
bool is_interrupted();

// Values of opdock_call_options.allows_tf32: torch's setting for its own float32 products, for
// calls with torch tensors; and the last value passed to allow_tf32(), for all others.
int32_t torch_allows_tf32();
int32_t option_allows_tf32();
void allow_tf32(bool allowed);
// Values of opdock_call_options.wants_deterministic: torch.use_deterministic_algorithms(), for
// calls with torch tensors; and the last value passed to want_deterministic(), for all others.
int32_t torch_wants_deterministic();
int32_t option_wants_deterministic();
void want_deterministic(bool wanted);

// Sets `reasons` of the Python exception that is set, from opdock_take_reasons_json.
void add_reasons();

}  // namespace opdock::python

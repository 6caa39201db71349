// libopdock's hooks, answered by Python: Ctrl-C, the GIL while it builds, and the references.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "opdock/opdock.h"

namespace opdock::python {

// Fills in the hooks of `options`; static, so that they outlive every runtime.
void set_hooks(opdock_options* options);

// An exception that Python code called by a hook raised on this thread: raised again here, where
// the call that led to the hook has come back. False if there is none. The GIL is held.
bool raise_kept_error();
// Whether a signal's handler has raised an error, which is kept for this thread and raised once the
// interpreter goes on. With the GIL.
bool is_interrupted();

// opdock_call_options.allows_tf32: of calls with torch's tensors, what torch allows its own
// products of float32; of others what allow_tf32() has said last.
int32_t torch_allows_tf32();
int32_t option_allows_tf32();
void allow_tf32(bool allowed);

// Puts what opdock_take_reasons_json says into `reasons` of the exception that is set.
void add_reasons();

}  // namespace opdock::python

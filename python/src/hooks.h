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

// Puts what opdock_take_reasons_json says into `reasons` of the exception that is set.
void add_reasons();

}  // namespace opdock::python

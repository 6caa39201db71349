// Arguments that ops keep after the call (opdock.retain/1): references that are given back without
// asking for the GIL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "function.h"
#include "opdock/opdock.h"

namespace opdock::python {

// What a call's keeper needs to know; lives as long as the call.
struct KeptArguments {
  const FunctionInfo* info;
  const opdock_value* values;
  PyObject* const* objects;
  const Import* imports;
};

// A keeper whose context is `arguments`. The calling thread need not hold the GIL.
opdock_keeper keeper_of(KeptArguments* arguments);

// Drops the references that plugins have given back. The GIL is held.
void drop_kept();

}  // namespace opdock::python

// Lets ops keep arguments after the call (opdock.retain/1), and give the references back without
// acquiring the GIL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "frame.h"
#include "function.h"
#include "opdock/opdock.h"

namespace opdock::python {

// The data of a call's keeper; lives as long as the call.
struct KeptArguments {
  const FunctionInfo* info;
  const opdock_value* values;
  PyObject* const* objects;
  const Import* imports;
};

// Returns a keeper whose context is `arguments`. Its functions can be called without the GIL.
opdock_keeper keeper_of(KeptArguments* arguments);

// Drops the references that plugins have given back. The GIL is held.
void drop_kept();

}  // namespace opdock::python

// Tells Python what an op's results will be, without their data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace opdock::python {

// Adds to the module, for functions of opdock.load() and opdock.formula():
// - op_facts(function): (OPDOCK_OP_… of the op, the parameter that decides where it runs)
// - formula_text(function): opdock_function_formula, the formula of a plugin's op or ""
// - shape_rules(function): opdock_shape_rule of each result as tuples, None for a result that is no
//   new tensor
// - plan(function, arguments): what opdock_plan_call answers for these arguments, all parameters in
//   the schema's order, as a list of (dtype, shape). A tensor is (dtype, device, shape, strides);
//   dtypes and devices are DLPack's numbers.
void add_shapes(pybind11::module_& module);

}  // namespace opdock::python

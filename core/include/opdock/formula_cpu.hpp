// opdock/formula_cpu.hpp: all that the compiled CPU code of a formula is written in
// (core/formula/cpu_source.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_FORMULA_CPU_HPP_
#define OPDOCK_FORMULA_CPU_HPP_

#include "opdock/formula_reductions.hpp"
#include "opdock/formula_rows.hpp"

#endif  // OPDOCK_FORMULA_CPU_HPP_

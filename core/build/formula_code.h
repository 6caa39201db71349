// Compiled CPU code of formulas: made by the host's C++ compiler, and kept in the cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"
#include "cache/cache.h"
#include "opdock/formula_cpu.h"

namespace opdock {

// Returns the code of a source, whose function is formula::kCodeFunction, that is in the cache,
// made by any compiler for this processor's level (OPDOCK_CPU_LEVEL lowers it); NULL if there is
// none. name: of the formula, for people. The code stays loaded until the process ends. Starts
// nothing. Any thread.
opdock_formula_function find_formula_code(const std::string& name, const std::string& source,
                                          Cache* cache, std::vector<Reason>* reasons);

// Returns the code of a source, and compiles it if the cache does not have it of this compiler:
// once in all processes, with $CXX, else c++, g++ or clang++. A failure is remembered until the
// source or the compiler changes. NULL and reasons if there is no compiler or it fails, under
// AT_SECURE, and without a cache. Blocking, for seconds; any thread; never throws.
opdock_formula_function make_formula_code(const std::string& name, const std::string& source,
                                          Cache* cache, Progress* progress,
                                          std::vector<Reason>* reasons);

}  // namespace opdock

// A request checked and described: what can be known before any compiler is opened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "jit/compiler.h"

namespace opdock {

// Appends a reason and returns false if the request contradicts itself.
bool check_request(const CompileRequest& request, std::vector<Reason>* reasons);

// Of the architecture: "sm_90a" gives kCubin.
ImageKind output_kind(const CompileRequest& request);

// How messages call the result: "softmax 0.1.0 for sm_90a".
std::string subject_of(const CompileRequest& request);

}  // namespace opdock

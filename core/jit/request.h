// Checks and describes a request, as far as possible before any compiler is opened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "jit/compiler.h"

namespace opdock {

// Appends a reason and returns false if the request contradicts itself.
bool check_request(const CompileRequest& request, std::vector<Reason>* reasons);

// Returns the kind of image for the architecture: kCubin for "sm_90a".
ImageKind output_kind(const CompileRequest& request);

// Returns what messages call the result: "softmax 0.1.0 for sm_90a".
std::string subject_of(const CompileRequest& request);

}  // namespace opdock

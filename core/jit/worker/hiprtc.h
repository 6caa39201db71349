// hipRTC, AMD's run-time compiler. Only opdock-compile uses it: hipRTC 5.2 aborts the process for
// architectures that it does not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "jit/nvrtc.h"

namespace opdock {

// Compiles with the library at `path` (libhiprtc.so.N, or libamdhip64.so.5, which contains hipRTC)
// for job.arch, such as "gfx90a:xnack-", into a code object.
CompileResult compile_with_hiprtc(const std::string& path, const CompileJob& job);

}  // namespace opdock

// Runs commands that are written in Python, in the package opdock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace opdock::cli {

// Returns $OPDOCK_PYTHON, else "python3", which is searched in PATH.
std::string python_program();

// Becomes a Python process (python_program()) and runs `program`, whose sys.argv[1:] are the
// arguments; this command's own package is imported. what: the command, for messages. Throws
// Failure if there is no Python.
[[noreturn]] void run_python(const std::string& what, const std::string& program,
                             std::vector<std::string> arguments);

}  // namespace opdock::cli

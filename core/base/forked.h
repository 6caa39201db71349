// Tells whether threads that libraries rely on may be missing, because they do not survive a fork.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace opdock {

// Returns whether this process began as a fork and has not called exec since: the flag
// PF_FORKNOEXEC in /proc/self/stat (proc(5)). Returns true where that file cannot be read.
bool began_as_fork();

}  // namespace opdock

// Whether threads that libraries count on may be gone: they do not survive a fork.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace opdock {

// Whether this process began as a fork and has executed no program since: PF_FORKNOEXEC among the
// flags in /proc/self/stat (proc(5)). True where that cannot be read.
bool began_as_fork();

}  // namespace opdock

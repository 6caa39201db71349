// Opens and closes a job's file, and does I/O by plain system calls, which are the fallback for
// everything else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job.h"

namespace async_io {

// Opens the job's file, resizes it if requested, and checks that a read finds enough bytes. Splits
// the request into a part that is done in blocks and a rest for finish_file.
Failure open_file(Job* job);

// Transfers this part of the request completely: it continues after a partial transfer and after
// EINTR, and after EINVAL without direct I/O. Any thread.
Failure transfer(Job* job, uint64_t position, uint64_t bytes);

// Transfers the bytes before and after the blocks, and closes the file. Called once all blocks have
// ended. If something has failed it only closes the file.
Failure finish_file(Job* job, const Failure& failure);

}  // namespace async_io

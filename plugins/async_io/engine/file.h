// The file of a job: opening and closing it, and I/O by plain system calls, which all else falls
// back on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job.h"

namespace async_io {

// Opens the job's file (resizes it if that is asked for, sees that a read finds enough bytes) and
// splits the request into what is done in blocks and what is left for finish_file.
Failure open_file(Job* job);

// Transfers this part of the request, from its beginning on, whatever it takes: after a partial
// transfer and after EINTR it goes on, and after EINVAL without direct I/O. Any thread.
Failure transfer(Job* job, uint64_t position, uint64_t bytes);

// Once all blocks have ended: transfers what lies before and behind them, and closes the file. If
// something has failed it only closes.
Failure finish_file(Job* job, const Failure& failure);

}  // namespace async_io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "job.h"

namespace async_io {

// Checks a request and copies it, with a duplicate of its descriptor. Throws Error.
std::unique_ptr<Job> make_job(const Request& request);

}  // namespace async_io

// The vocabulary of device code. A kernel includes this file, and other headers of its folder if it
// needs them. It contains no raw intrinsics, assembly or #ifdef, so that one source runs on every
// target that has the vocabulary. This file needs no header of a toolkit and compiles with an empty
// include path.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/atomic.cuh"
#include "opdock/bytes.cuh"
#include "opdock/cluster.cuh"
#include "opdock/cluster_gather.cuh"
#include "opdock/copy_async.cuh"
#include "opdock/dtype.cuh"
#include "opdock/launch.cuh"
#include "opdock/matrix.cuh"
#include "opdock/reduce.cuh"
#include "opdock/target.cuh"
#include "opdock/vector.cuh"
#include "opdock/warp.cuh"

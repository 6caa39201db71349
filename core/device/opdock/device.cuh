// The vocabulary of device code. A kernel includes this file and nothing else, and contains no raw
// intrinsic, assembly or #ifdef: so one source runs wherever the vocabulary has a meaning. It needs
// no other header and compiles with an empty include path.
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

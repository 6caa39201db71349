// Includes all kernels of attention and append_kv.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "added.cuh"
#include "append.cuh"
#include "append_pieces.cuh"
#include "backward.cuh"
#include "backward_tiles.cuh"
#include "columns.cuh"
#include "decode.cuh"
#include "dropped.cuh"
#include "plain.cuh"
#include "prompt.cuh"
#include "sequences.cuh"

// The functions of the GPU part that the host part calls. Both return NULL, or the CUDA runtime's
// error text.
#pragma once

#include <cstdint>

enum class Element { kFloat32, kFloat16, kBfloat16 };

// Enqueues y = a * x on `stream` for n > 0 elements; neither waits nor allocates.
const char* launch_opname(Element element, const void* x, void* y, float a, int64_t n,
                          void* stream);

// Loads the kernels, so that the first launch may be inside a graph capture.
const char* load_opname();

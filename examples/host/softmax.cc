// A program in C++ that calls an op: softmax over the rows of a 2 x 3 matrix of float32 on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <opdock/opdock.hpp>
#include <vector>

int main() {
  try {
    opdock::Runtime runtime;  // plugins are searched in the usual places
    opdock::Function softmax = runtime.function("softmax");
    std::vector<float> in = {1, 2, 3, 1, 1, 1};
    opdock::TensorView x(in.data(), {2, 3});
    opdock::ResultList out = softmax(x);  // allocated and freed by the host
    const float* y = out[0].data<float>();
    for (int row = 0; row < 2; ++row)
      std::printf("%.4f %.4f %.4f\n", y[3 * row], y[3 * row + 1], y[3 * row + 2]);
  } catch (const std::exception& error) {  // opdock::Error has a status too
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

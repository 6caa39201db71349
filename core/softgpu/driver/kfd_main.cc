// softgpu-kfd FOLDER: writes into FOLDER what KFD would report about OPDOCK_SOFTGPU's AMD GPUs.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "kfd.h"

int main(int count, char** words) {
  if (count != 2) {
    std::fputs("usage: softgpu-kfd FOLDER\n", stderr);
    return 2;
  }
  try {
    softgpu::write_kfd(softgpu::config().amd_gpus, words[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softgpu-kfd: %s\n", error.what());
    return 1;
  }
  return 0;
}

// Runs a model that AOTInductor has compiled, with Opdock's operators, without Python:
//   run model.pt2
// Loading libopdock_torch, which the program links, registers the operators.
// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: run MODEL.pt2\n";
    return 2;
  }
  const torch::NoGradGuard no_gradients;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  const at::Tensor x = torch::arange(24, torch::kFloat32).reshape({3, 8}) / 24;
  const at::Tensor result = model.run({x})[0].contiguous();
  for (int64_t i = 0; i < result.numel(); ++i) std::cout << result.data_ptr<float>()[i] << '\n';
  return 0;
}

// Compiles formulas for the CPU with the host's compiler, and calls them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "formula/cpu_call.h"
#include "formula/cpu_source.h"
#include "formula/interpreter.h"
#include "opdock/simd_level.hpp"
#include "tensors.h"

namespace opdock::formula {

// The code of several formulas, in one library.
class Compiled {
 public:
  // OPDOCK_CPU_LEVEL in the environment lowers the level.
  explicit Compiled(const std::vector<Graph>& graphs, const std::string& arguments = "-O1") {
    char folder[] = "/tmp/opdock-compiled-XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    const std::string base = std::string(folder) + "/code";
    {
      std::ofstream file(base + ".cc");
      for (size_t i = 0; i < graphs.size(); ++i)
        file << cpu_source(graphs[i], "f" + std::to_string(i));
    }
    const char* const compiler = std::getenv("CXX");
    std::string command = compiler != nullptr ? compiler : "c++";
    for (const std::string& argument : cpu_source_arguments()) command += " " + argument;
#if defined(__x86_64__)
    const std::string level = std::to_string(simd_level());
    command += " -DOPDOCK_SIMD_LEVEL=v" + level + " -DOPDOCK_SIMD_ONLY=v" + level;
    if (level != "1") command += " -march=x86-64-v" + level;
#else
    command += " -DOPDOCK_SIMD_LEVEL=base -DOPDOCK_SIMD_ONLY=base";
#endif
    command += " " + arguments + " -DHWY_IS_DEBUG_BUILD=0 -Wall -Wextra -Wpedantic -Werror -fPIC" +
               " -shared -I" OPDOCK_HEADERS " -o " + base + ".so " + base + ".cc";
    const int status = std::system(command.c_str());
    EXPECT_EQ(status, 0) << command;
    if (status == 0) library_ = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr);
    if (std::getenv("OPDOCK_KEEP_CODE") == nullptr)
      for (const char* end : {".cc", ".so"}) unlink((base + end).c_str());
    rmdir(folder);
  }
  ~Compiled() {
    if (library_ != nullptr) dlclose(library_);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  opdock_formula_function function(size_t i) const {
    return library_ == nullptr ? nullptr
                               : reinterpret_cast<opdock_formula_function>(
                                     dlsym(library_, ("f" + std::to_string(i)).c_str()));
  }

 private:
  void* library_ = nullptr;
};

// Does what run() in tensors.h does, by compiled code.
inline void run(opdock_formula_function function, const Graph& graph, std::vector<Tensor*> inputs,
                std::vector<Tensor*> results, const std::vector<Value>& scalars = {},
                int64_t parts = 1) {
  std::vector<Operand> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (Tensor* tensor : inputs) {
    in.push_back(tensor->operand());
    from.push_back(tensor->data());
  }
  for (Tensor* tensor : results) {
    out.push_back(tensor->operand());
    to.push_back(tensor->data());
  }
  const Space space = make_space(graph, in, out);
  const int64_t pieces = Interpreter(graph).pieces(space);
  const CpuCall call(space, from.data(), to.data(), scalars.data(), scalars.size());
  for (int64_t part = 0; part < parts; ++part)
    function(call.get(), pieces * part / parts, pieces * (part + 1) / parts);
}

}  // namespace opdock::formula

// What plugins/meson.build compiles and links a plugin with: headers and files of arguments, made
// before anything is compiled.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pack/arch_flags.h"

namespace opdock::pack {

struct PrepareOptions {
  std::string toml;
  std::string out_dir = ".";
  std::string prefix;  // of the files' names
  std::string depfile;
  std::string compiler_id;     // of the host part's: "gcc", "clang"
  std::string host_compiler;   // its program, for nvcc
  std::string nvcc, hipcc;     // programs; empty: the plugin has no such sources
  std::string headers;         // the folder of opdock/plugin.h
  std::string device_headers;  // the folder of opdock/device.cuh
  ArchLists archs;
};

// Writes ops.h, by which OPDOCK_OP checks functions; needs.h, which every source includes first;
// c.args and cxx.args, for the host part's compiler, and link.args, as "@FILE"; nvcc.args and
// hipcc.args, for run_compiler(). Asks pkg-config and nvcc. The program's exit status; errors go to
// standard error.
int prepare(const PrepareOptions& options);

// Compiles a .cu or .hip file: becomes the compiler that the file of arguments begins with. Returns
// only if it cannot: the exit status, with an error.
int run_compiler(const std::string& arguments, const std::string& source, const std::string& output,
                 const std::string& depfile);

// Writes the names of the folders in this one that are plugins' (with a plugin.toml and a
// meson.build) to standard output, a line each, in their order.
int list_plugins(const std::string& folder);

}  // namespace opdock::pack

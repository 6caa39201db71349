// Makes the headers and files of arguments with which plugins/meson.build compiles and links a
// plugin, before anything is compiled.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pack/arch_flags.h"

namespace opdock::pack {

struct PrepareOptions {
  std::string toml;
  std::string out_dir = ".";
  std::string prefix;  // put before the files' names
  std::string depfile;
  std::string compiler_id;     // of the host part's compiler: "gcc", "clang"
  std::string host_compiler;   // the host part's C++ compiler, for nvcc
  std::string nvcc, hipcc;     // programs; empty: the plugin has no such sources
  std::string headers;         // the folder of opdock/plugin.h
  std::string device_headers;  // the folder of opdock/device.cuh
  ArchLists archs;
};

// Writes ops.h, by which OPDOCK_OP checks functions; needs.h, which every source includes first;
// c.args and cxx.args, for the host part's compiler, and link.args, to be used as "@FILE";
// nvcc.args and hipcc.args, for run_compiler(); formulas.cc, formula_table.cc and formulas.args,
// the code of the plugin's formulas for CPUs and the arguments of its compiler. Asks pkg-config and
// nvcc. Returns the program's exit status; errors go to standard error.
int prepare(const PrepareOptions& options);

// Compiles a .cu or .hip file: replaces this process by the compiler that the file of arguments
// begins with. Returns only if that fails: the exit status, after an error.
int run_compiler(const std::string& arguments, const std::string& source, const std::string& output,
                 const std::string& depfile);

// Writes the names of the folders in `folder` that are plugins' (with a plugin.toml and a
// meson.build) to standard output, one per line, in their order.
int list_plugins(const std::string& folder);

}  // namespace opdock::pack

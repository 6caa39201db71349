// Finds the programs that a build runs, and identifies them by their contents.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/reason.h"
#include "build/builder.h"
#include "cache/cache.h"
#include "manifest/manifest.h"

namespace opdock {

// Which compilers a plugin's sources need, by the endings of their names, and which other tools are
// asked.
struct Languages {
  bool cuda = false;                  // .cu: nvcc
  bool hip = false;                   // .hip: hipcc
  bool device_images = false;         // kernels and architectures: NVRTC, inside opdock-pack
  bool hip_images = false;            // kernels and AMD's architectures: hipRTC
  std::vector<std::string> packages;  // names of libraries: pkg-config
};
Languages languages_of(const Manifest& manifest, const BuildOptions& options);

// Absolute paths of programs; a compiler's further words are its arguments ("ccache", "g++").
// Empty: not found.
struct BuildTools {
  std::vector<std::string> c;    // $CC, else cc, gcc, clang
  std::vector<std::string> cpp;  // $CXX, else c++, g++, clang++
  std::string meson, ninja;      // $MESON, $NINJA, else in a Python environment, else in PATH
  std::string nvcc, hipcc;       // $CUDACXX, $HIPCXX, else as find_tools() finds them
  std::string pkg_config;        // $PKG_CONFIG, else as Meson is found
  std::string pack, guard;       // opdock-pack and opdock-guard
  // The folders where this process finds NVRTC. opdock-pack searches them first, because its own
  // environment does not lead it to the Python that this process belongs to.
  std::vector<std::string> nvrtc_folders;
};

// Returns nvcc as a build finds it: $CUDACXX, else as find_tools() finds it. Empty: none. Starts
// nothing.
std::string find_nvcc();
// Returns those programs next to that nvcc that make the code and exist.
std::vector<std::string> nvcc_parts(const std::string& nvcc);

// Returns the folders of every NVRTC that this process would find, without those whose names Meson
// cannot take.
std::vector<std::string> nvrtc_folders();

// Finds the tools that `languages` need; each missing one becomes a reason. Starts nothing.
BuildTools find_build_tools(const Languages& languages, std::vector<Reason>* reasons);

// Finds only the C++ compiler and opdock-guard. Starts nothing.
BuildTools find_compiler_tools(std::vector<Reason>* reasons);

// Identifies the compilers that would make the result: their versions for people, and an id
// computed from their programs. For pkg-config's libraries the id covers their versions and the
// arguments that they need. Starts the compilers with --version, each for at most 10 seconds and
// not beyond `deadline` (build-timeout); one that cannot say its version becomes a reason
// (build-no-compiler).
CacheMaker identify(const BuildTools& tools, const Languages& languages,
                    std::chrono::steady_clock::time_point deadline, Progress* progress,
                    std::vector<Reason>* reasons);

// Returns the environment that the tools are started with: without anything of the caller's that
// changes what they make. Of the caller's environment it keeps only HOME, LD_LIBRARY_PATH and the
// variables that say where an installation is; CFLAGS, CPATH and the like are dropped. `temporary`:
// for TMPDIR.
std::vector<std::string> build_environment(const BuildTools& tools, const std::string& temporary);

// Returns the build-id of an ELF file, else its size and the SHA-256 of its contents; "" if it
// cannot be read.
std::string file_identity(const std::string& path);

}  // namespace opdock

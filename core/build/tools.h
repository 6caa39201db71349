// The programs that a build runs: found, and identified by their contents.
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

// Which compilers a plugin's sources take, by their names' endings, and what else is asked.
struct Languages {
  bool cuda = false;                  // .cu: nvcc
  bool hip = false;                   // .hip: hipcc
  bool device_images = false;         // [device] and architectures: NVRTC, inside opdock-pack
  bool hip_images = false;            // the same for AMD's GPUs: hipRTC
  std::vector<std::string> packages;  // libraries by their names: pkg-config
};
Languages languages_of(const Manifest& manifest, const BuildOptions& options);

// Absolute paths; a compiler's further words are its arguments ("ccache", "g++"). Empty: not found.
struct BuildTools {
  std::vector<std::string> c;    // $CC, else cc, gcc, clang
  std::vector<std::string> cpp;  // $CXX, else c++, g++, clang++
  std::string meson, ninja;      // $MESON, $NINJA, else beside this library's Python, else in PATH
  std::string nvcc, hipcc;       // $CUDACXX, $HIPCXX, else as find_tools() has them
  std::string pkg_config;        // $PKG_CONFIG, else as Meson is found
  std::string pack, guard;       // Opdock's own
  // Where this process has NVRTC. opdock-pack looks there first: what it is started with does not
  // lead it to the Python that this process belongs to.
  std::vector<std::string> nvrtc_folders;
};

// nvcc as a build finds it: $CUDACXX, else as find_tools() has it. Empty: none. Starts nothing.
std::string find_nvcc();
// The programs beside that nvcc that make the code, as far as they are there.
std::vector<std::string> nvcc_parts(const std::string& nvcc);

// The folders of every NVRTC that this process would find; none whose name Meson cannot take.
std::vector<std::string> nvrtc_folders();

// Looks for those that `languages` take; whatever is missing becomes a reason. Starts nothing.
BuildTools find_build_tools(const Languages& languages, std::vector<Reason>* reasons);

// Who would make the result: versions for people, and an id from what the compilers' programs are.
// Of libraries of pkg-config's it is their versions and the arguments that they take.
// Starts the compilers with --version, each for at most 10 seconds and not beyond `deadline`
// (build-timeout); one that cannot say its version becomes a reason (build-no-compiler).
CacheMaker identify(const BuildTools& tools, const Languages& languages,
                    std::chrono::steady_clock::time_point deadline, Progress* progress,
                    std::vector<Reason>* reasons);

// What the tools are started with: nothing of the caller's that changes what they make. Of its
// environment only HOME, LD_LIBRARY_PATH and what says where an installation is are kept; CFLAGS,
// CPATH and the like are not. `temporary`: for TMPDIR.
std::vector<std::string> build_environment(const BuildTools& tools, const std::string& temporary);

// The build-id of an ELF file, else its size and the SHA-256 of its contents; "" if unreadable.
std::string file_identity(const std::string& path);

}  // namespace opdock

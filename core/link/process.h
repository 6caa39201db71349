// The process that a file would be loaded into: what its loader has already, and where it looks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "link/search.h"

namespace opdock {

// A library that the process has before the file is loaded.
struct LoadedLibrary {
  std::vector<std::string> names;  // that a NEEDED entry may call it by: path, soname
  std::string path;                // empty: it is only assumed to be there
  bool is_global = false;          // its symbols serve every library that is loaded later
  bool is_assumed = false;         // nobody knows its symbols
};

struct ProcessModel {
  SearchPlaces places;
  std::vector<LoadedLibrary> loaded;
  std::string program;  // path of what was started; empty: a C program or this process
  // This process: its loader can be asked what no table shows.
  bool is_this_process = false;
  // Bytes for libraries with static TLS, and the greatest alignment; nullopt: not known.
  std::optional<int64_t> tls_left;
  uint64_t tls_align = 64;
  // A machine of which people have told no more than the versions of symbols that the C library
  // and the compilers' libraries have, by prefix: {"GLIBC": 2.28}. One that is absent is unknown.
  bool is_described = false;
  std::map<std::string, Version> assumed_versions;
  // Packages that are not looked at may bring what is missing.
  bool others_bring = false;
};

// cpu_level: MachineFacts::cpu_level.
ProcessModel this_process(int cpu_level);
// A C program that has only just been started here.
ProcessModel fresh_process(int cpu_level);
// A program at `path` (an interpreter) that has just been started; nullopt: there is none.
std::optional<ProcessModel> started_program(const std::string& path, int cpu_level);

// A machine of that processor (EM_…) and those symbol versions, with the libraries of glibc and
// gcc.
ProcessModel described_process(uint16_t machine, int cpu_level,
                               std::map<std::string, Version> versions);
// Takes it as given that the process can have the library under that name.
void assume_library(const std::string& name, ProcessModel* process);

}  // namespace opdock

// Models the process that would load a file: the libraries that it has, and the places that its
// loader searches.
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
  std::vector<std::string> names;  // names that a NEEDED entry may use for it: path, soname
  std::string path;                // empty: it is only assumed to exist
  bool is_global = false;          // every library that is loaded later can use its symbols
  bool is_assumed = false;         // its symbols are unknown
};

struct ProcessModel {
  SearchPlaces places;
  std::vector<LoadedLibrary> loaded;
  std::string program;  // path of the program that was started; empty: a C program or this process
  // True for this process: its loader can be asked for what no table shows.
  bool is_this_process = false;
  // Bytes left for libraries with static TLS (nullopt: unknown), and the greatest alignment.
  std::optional<int64_t> tls_left;
  uint64_t tls_align = 64;
  // True for a described machine, of which only the newest symbol versions of the C library and the
  // compilers' libraries are known, by prefix: {"GLIBC": 2.28}. An absent prefix is unknown.
  bool is_described = false;
  std::map<std::string, Version> assumed_versions;
  // Packages that are not examined may bring what is missing.
  bool has_absent_requirements = false;
};

// Returns the model of this process. cpu_level: MachineFacts::cpu_level.
ProcessModel this_process(int cpu_level);
// Returns the model of a C program that was just started on this machine.
ProcessModel fresh_process(int cpu_level);
// Returns the model of a program at `path` (an interpreter) that was just started; nullopt: there
// is none.
std::optional<ProcessModel> started_program(const std::string& path, int cpu_level);

// Returns the model of a process on a machine with that processor (EM_…) and those symbol versions,
// which has the libraries of glibc and gcc.
ProcessModel described_process(uint16_t machine, int cpu_level,
                               std::map<std::string, Version> versions);
// Lets the model assume that the process can load a library of that name.
void assume_library(const std::string& name, ProcessModel* process);

}  // namespace opdock

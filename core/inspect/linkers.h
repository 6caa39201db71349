// The processes that a package's files are for, each with its Linker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "facts/machine.h"
#include "link/linker.h"
#include "link/python.h"
#include "note/file_facts.h"

namespace opdock {

// What files are judged against.
struct Surroundings {
  MachineFacts machine;
  bool described = false;  // not this machine: MachineSpec
  // Of a described machine: its libraries are told too, by their versions. Otherwise they are this
  // machine's.
  bool libraries_described = false;
  // An interpreter of Python's for extension modules: a path; empty: one of those in PATH.
  std::string python;
};

// For the files of one package. Thread-safe.
class Linkers {
 public:
  // around and files must outlive it. elsewhere: Linker's. others_bring: the package requires
  // others, which are not here to be looked at and may bring what is missing. python: of the
  // package's extension modules, where their own paths do not say it.
  Linkers(const Surroundings& around, const Files& files,
          std::map<std::string, std::string> elsewhere, bool others_bring, PythonNeed python = {});

  // In a fresh C program, or in Python if it is an extension module.
  LinkFacts link(const FileFacts& file);

 private:
  Linker& in_program(const std::string& program);  // its path; empty: a C program
  ProcessModel model_of(const std::string& program) const;
  LinkFacts link_in_python(const FileFacts& file);

  const Surroundings& around_;
  const Files& files_;
  const std::map<std::string, std::string> elsewhere_;
  const bool others_bring_;
  const PythonNeed python_;
  Mutex mutex_;  // of what follows
  std::map<std::string, std::unique_ptr<Linker>> linkers_;
  std::map<PythonNeed, std::string> pythons_;  // empty: none here
};

}  // namespace opdock

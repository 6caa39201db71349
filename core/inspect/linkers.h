// Models the processes that a package's files are loaded into, each with its Linker.
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

// The machine and the Python that files are judged against.
struct JudgedMachine {
  MachineFacts machine;
  bool described = false;  // it is not this machine, but a MachineSpec's
  // For a described machine: its libraries are described too, by their versions. If not, they are
  // this machine's.
  bool libraries_described = false;
  // The path of a Python interpreter for extension modules; empty: one of those in PATH.
  std::string python;
};

// Links the files of one package. Thread-safe.
class Linkers {
 public:
  // around and files must outlive this object. elsewhere: as for Linker. has_absent_requirements:
  // the package requires others, which cannot be examined here and may bring what is missing.
  // python: the Python that the package's extension modules are for, if their own paths do not say
  // it.
  Linkers(const JudgedMachine& around, const Files& files,
          std::map<std::string, std::string> elsewhere, bool has_absent_requirements,
          PythonNeed python = {});

  // Links the file in a fresh C program, or in Python if it is an extension module.
  LinkFacts link(const FileFacts& file);

 private:
  Linker& in_program(const std::string& program);  // program: its path; empty: a C program
  ProcessModel model_of(const std::string& program) const;
  LinkFacts link_in_python(const FileFacts& file);

  const JudgedMachine& around_;
  const Files& files_;
  const std::map<std::string, std::string> elsewhere_;
  const bool has_absent_requirements_;
  const PythonNeed python_;
  Mutex mutex_;  // guards the members below
  std::map<std::string, std::unique_ptr<Linker>> linkers_;
  std::map<PythonNeed, std::string> pythons_;  // the interpreter's path; empty: none here
};

}  // namespace opdock

// Finds Opdock's own files relative to this library's location, in the same way in a prefix, in a
// wheel and in the build tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Absolute paths; a path is empty if the file or folder does not exist.
struct Installed {
  std::string root;            // the prefix, the Python package's folder or the build tree
  std::string data;            // share/opdock
  std::string include;         // holds opdock/plugin.h
  std::string device;          // holds opdock/device.cuh
  std::string plugin_build;    // the wrapper project that builds a single plugin
  std::string plugin_sources;  // folders of the shipped plugins, each with a plugin.toml

  // Returns the path of a program that comes with Opdock, such as "opdock-pack" (in bin) or
  // "opdock-guard" (in libexec/opdock), or "" if it is not there.
  std::string program(const std::string& name) const;
};

// Returns the folder of the shared object (or program) that contains this code, with links
// resolved, or "" if it is unknown. Searches once. Thread-safe.
const std::string& own_folder();

// Returns the installed files. Searches once. The data folder is the first that exists of
// <libdir>/../share/opdock, <libdir>/../../share/opdock and the configured one. Thread-safe.
const Installed& installed();

// Returns the files that belong to a library in `libdir`, for programs that link the library
// statically (the tests).
Installed find_installed(const std::string& libdir);
// Makes installed() return `found`. Call it before anything uses installed(); not thread-safe.
void use_installed(const Installed& found);

}  // namespace opdock

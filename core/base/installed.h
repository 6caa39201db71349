// Where Opdock's own files are: found from where this library lies, the same in a prefix, in a
// wheel and in the build tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Absolute paths; empty where the thing is not there.
struct Installed {
  std::string root;            // the prefix, the package's folder, the build tree
  std::string data;            // share/opdock
  std::string include;         // holds opdock/plugin.h
  std::string device;          // holds opdock/device.cuh
  std::string plugin_build;    // the wrapper project that builds a single plugin
  std::string plugin_sources;  // folders of the shipped plugins, each with a plugin.toml

  // A program that comes with Opdock, such as "opdock-pack" (in bin) or "opdock-guard" (in
  // libexec/opdock); empty: not there.
  std::string program(const std::string& name) const;
};

// The folder of the shared object (or program) that holds this code, links resolved; empty: not
// known. Looked for once. Thread-safe.
const std::string& own_folder();

// Looked for once. The data folder is the first that exists of <libdir>/../share/opdock,
// <libdir>/../../share/opdock and the configured one. Thread-safe.
const Installed& installed();

// What belongs to a library in `libdir`: for programs that link it statically (the tests).
Installed find_installed(const std::string& libdir);
// Makes installed() answer with this. Before the first use of what needs it; not thread-safe.
void use_installed(const Installed& found);

}  // namespace opdock

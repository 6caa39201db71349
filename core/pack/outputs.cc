// SPDX-License-Identifier: Apache-2.0
#include "pack/outputs.h"

#include <cstdio>
#include <fstream>

#include "base/files.h"
#include "base/sentence.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;

// make's syntax: a space in a name is escaped.
std::string escaped(const fs::path& path) {
  std::string out;
  for (char c : path.string()) {
    if (c == ' ' || c == '#') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::optional<Manifest> read_declaration(const std::string& toml) {
  std::vector<Reason> mistakes;
  std::optional<Manifest> manifest = read_manifest(toml, &mistakes);
  for (const Reason& mistake : mistakes) {
    const size_t place = mistake.found.find(": ", toml.size());
    std::fprintf(stderr, "%s: error%s, wanted %s\n", mistake.found.substr(0, place).c_str(),
                 mistake.found.substr(place).c_str(), mistake.wanted.c_str());
  }
  return manifest;
}

int report(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
  return 1;
}

int report(const Reason& reason) {
  return report(std::vector<std::string>{"opdock-pack: error: " + to_line(reason)});
}

bool write_file(const fs::path& path, const std::string& bytes) {
  if (read_file(path) == bytes) return true;
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
  stream.close();
  if (!stream) std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return bool(stream);
}

bool write_depfile(const std::string& depfile, const fs::path& target,
                   const std::vector<fs::path>& depends) {
  if (depfile.empty()) return true;
  std::string text = escaped(target) + ":";
  for (const fs::path& path : depends) text += " \\\n  " + escaped(path);
  return write_file(depfile, text + "\n");
}

}  // namespace opdock::pack

// SPDX-License-Identifier: Apache-2.0
#include "pack/outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/files.h"
#include "base/sentence.h"
#include "build/limits.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;

// Escapes a name in make's syntax, in which a space or '#' needs a backslash.
std::string escaped(const fs::path& path) {
  std::string out;
  for (char c : path.string()) {
    if (c == ' ' || c == '#') out += '\\';
    out += c;
  }
  return out;
}

// Writes the file, after making the folders above it, with the rights that the user's mask leaves.
// Returns 0 or an errno value.
int put(const fs::path& path, const std::string& bytes) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);  // opening reports the same problem
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return errno == ENOENT && failed ? failed.value() : errno;
  if (const int error = write_all(file.get(), bytes)) return error;
  return close(file.release()) == 0 ? 0 : errno;
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
  const int error = put(path, bytes);
  if (error == 0) return true;
  Reason reason = cannot_write(path, error, Code::kBuildNoCache, "a file that can be written");
  if (reason.code == Code::kBuildNoCache) reason.advice = "check the rights of its folder";
  report(reason);
  return false;
}

bool write_depfile(const std::string& depfile, const fs::path& target,
                   const std::vector<fs::path>& depends) {
  if (depfile.empty()) return true;
  std::string text = escaped(target) + ":";
  for (const fs::path& path : depends) text += " \\\n  " + escaped(path);
  return write_file(depfile, text + "\n");
}

}  // namespace opdock::pack

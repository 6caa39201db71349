// SPDX-License-Identifier: Apache-2.0
#include "python_packages.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "base/fd.h"
#include "python_program.h"

extern char** environ;

namespace opdock::cli {
namespace {

constexpr std::chrono::seconds kDeadline{10};

// Finds the folders. It reads the files itself, because importlib.metadata takes longer than all of
// this. It leaves out the current folder, which is first in sys.path and holds no installed
// package.
constexpr const char* kQuestion = R"(
import os, sys
sys.path[:] = [p for p in sys.path if p]
values, seen = set(), set()
for site in sys.path:
    try:
        names = os.listdir(site)
    except OSError:
        continue
    for name in sorted(names):
        package = name.split("-")[0].lower()
        if not name.endswith((".dist-info", ".egg-info")) or package in seen:
            continue
        seen.add(package)
        try:
            with open(os.path.join(site, name, "entry_points.txt"), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        inside = False
        for line in map(str.strip, text.splitlines()):
            if line.startswith("["):
                inside = line == "[opdock.plugins]"
            elif inside and "=" in line:
                values.add(line.partition("=")[2].partition("[")[0].strip())
if values:
    from importlib.util import find_spec
    for value in sorted(values):
        top, *rest = value.split(".")
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            continue
        for place in getattr(spec, "submodule_search_locations", None) or ():
            folder = os.path.abspath(os.path.join(place, *rest))
            if os.path.isdir(folder):
                print(folder)
)";

// Reads the descriptor to its end; returns an empty text if that takes longer than kDeadline.
std::string read_all(int fd) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  std::string text;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wanted{fd, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {};
    char buffer[4096];
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer, static_cast<size_t>(size));
  }
}

}  // namespace

std::string package_folders() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const Fd out(ends[0]);
  Fd in(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, in.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  const std::string python = python_program();
  const char* words[] = {python.c_str(), "-c", kQuestion, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, python.c_str(), &actions, nullptr,
                                 const_cast<char* const*>(words), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in.release());
  if (error != 0) return {};
  std::string lines = read_all(out.get());
  kill(child, SIGKILL);  // the child has ended, or does not answer
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  while (lines.ends_with('\n')) lines.pop_back();
  for (char& c : lines) c = c == '\n' ? ':' : c;
  return lines;
}

}  // namespace opdock::cli

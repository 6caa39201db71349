// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

extern char** environ;

namespace softgpu {
namespace {

// Returns the environment without LD_PRELOAD: child processes must not load the stand-in drivers or
// a sanitizer's runtime.
std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at)
    if (std::strncmp(*at, "LD_PRELOAD=", 11) != 0) out.push_back(*at);
  return out;
}

}  // namespace

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    // A relative folder would mean a different program in every working directory.
    if (!folder.starts_with('/')) continue;
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

bool run_program(const std::vector<std::string>& words, std::string* output) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    *output += std::string("no pipe: ") + std::strerror(errno) + "\n";
    return false;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::vector<std::string> variables = environment();
  std::vector<char*> variable_pointers;
  for (const std::string& variable : variables)
    variable_pointers.push_back(const_cast<char*>(variable.c_str()));
  variable_pointers.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(),
                                  variable_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (failed) {
    *output += words[0] + " cannot be run: " + std::strerror(failed) + "\n";
    close(pipe_ends[0]);
    return false;
  }
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(pipe_ends[0], buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output->append(buffer, static_cast<size_t>(got));
  }
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace softgpu

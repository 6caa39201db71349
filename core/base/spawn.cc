// SPDX-License-Identifier: Apache-2.0
#include "base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.h"

extern char** environ;

namespace opdock {
namespace {

// Greater than every descriptor that a program gets in `files`. All descriptors are first
// duplicated to numbers from here on, so that no dup2 overwrites one that is still needed: a host
// may have closed 0 to 2.
constexpr int kOutOfTheWay = 10;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

int spawn(const Program& program, std::span<const FdMap> files, Child* child) {
  std::vector<Fd> moved;
  for (const FdMap& file : files) {
    moved.emplace_back(fcntl(file.from, F_DUPFD_CLOEXEC, kOutOfTheWay));
    if (!moved.back()) return errno;
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  for (int standard = 0; standard <= 2; ++standard) {
    const bool is_given =
        std::ranges::any_of(files, [&](const FdMap& file) { return file.to == standard; });
    if (!is_given) posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
  }
  for (size_t i = 0; i < files.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, moved[i].get(), files[i].to);
  if (!program.folder.empty())
    posix_spawn_file_actions_addchdir_np(&actions, program.folder.c_str());
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const std::vector<char*> words = pointers(program.words);
  const std::vector<char*> variables =
      program.environment != nullptr ? pointers(*program.environment) : std::vector<char*>();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, words[0], &actions, &attributes, words.data(),
                                program.environment != nullptr ? variables.data() : environ);
  if (error == 0) *child = Child(pid);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace opdock

// SPDX-License-Identifier: Apache-2.0
#include "build/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/child.h"
#include "base/fd.h"
#include "base/mutex.h"

namespace opdock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPollMilliseconds = 40;  // cancelled() is asked this often

bool make_pipe(Fd* read_end, Fd* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const Fd low(ends[1]);
  *read_end = Fd(ends[0]);
  // Out of the way of 0 to 3, which a host may have closed and which the child gets.
  *write_end = Fd(fcntl(low.get(), F_DUPFD_CLOEXEC, 10));
  fcntl(read_end->get(), F_SETFL, O_NONBLOCK);
  return static_cast<bool>(*write_end);
}

std::vector<char*> pointers(std::vector<std::string>* texts) {
  std::vector<char*> list;
  for (std::string& text : *texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Signals as a fresh program expects them: a host such as Python ignores SIGPIPE.
int spawn(const std::string& guard, const ProcessJob& job, int output, int report, Child* child) {
  std::vector<std::string> words = {guard, std::to_string(getpid())};
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  std::vector<std::string> variables = job.environment;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawn_file_actions_adddup2(&actions, report, 3);
  if (!job.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, job.folder.c_str());
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, guard.c_str(), &actions, &attributes, pointers(&words).data(),
                                pointers(&variables).data());
  if (error == 0) *child = Child(pid);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Everything that can be read now. False at the end of the file.
template <typename F>
bool drain(int fd, F&& take) {
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count > 0) {
      take(std::string_view(buffer, static_cast<size_t>(count)));
      // A program that prints without end must not keep us from asking for cancellation.
      return true;
    }
    if (count == 0) return false;
    if (errno != EINTR) return errno == EAGAIN;
  }
}

// What the guard wrote last; kNotStarted without errno if it was killed before it could.
ProcessEnd read_report(const std::string& text) {
  ProcessEnd end;
  char word[16] = {};
  int number = 0;
  if (std::sscanf(text.c_str(), "%15s %d", word, &number) != 2) {
    end.kind = ProcessEnd::kSignal;
    end.number = SIGKILL;
    return end;
  }
  end.number = number;
  end.kind = !std::strcmp(word, "exit")     ? ProcessEnd::kExit
             : !std::strcmp(word, "signal") ? ProcessEnd::kSignal
                                            : ProcessEnd::kNotStarted;
  return end;
}

}  // namespace

std::string ProcessEnd::text() const {
  switch (kind) {
    case kExit:
      return "ended with status " + std::to_string(number);
    case kSignal:
      return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
    case kTimeout:
      return "did not end in time";
    case kCancelled:
      return "was cancelled";
    case kNotStarted:
      return std::string("could not be started: ") + std::strerror(number);
  }
  return {};
}

ProcessEnd run_process(const std::string& guard, const ProcessJob& job) {
  const uint32_t began = forks();
  ProcessEnd end;
  Fd output, output_write, report, report_write;
  Child child;
  {
    const NoFork whole;  // a forked child would keep open what tells of the end by being closed
    if (!make_pipe(&output, &output_write) || !make_pipe(&report, &report_write)) {
      end.number = errno;
      return end;
    }
    end.number = spawn(guard, job, output_write.get(), report_write.get(), &child);
    output_write = Fd();
    report_write = Fd();
  }
  if (end.number != 0) return end;

  std::string reported;
  const auto take = [&](std::string_view piece) {
    if (job.on_output) job.on_output(piece);
  };
  bool stopping = false, has_output = true;
  ProcessEnd::Kind why = ProcessEnd::kExit;
  Clock::time_point kill_at;
  for (bool has_report = true; has_report;) {
    pollfd waiting[2] = {{report.get(), POLLIN, 0}, {has_output ? output.get() : -1, POLLIN, 0}};
    poll(waiting, 2, kPollMilliseconds);
    if (waiting[1].revents != 0) has_output = drain(output.get(), take);
    if (waiting[0].revents != 0) {
      has_report = drain(report.get(), [&](std::string_view piece) { reported.append(piece); });
    }
    // A hook has forked and come back, here in the child: the guard is the parent's.
    if (forks() != began) return {ProcessEnd::kCancelled, 0};
    if (!has_report) break;
    if (!stopping) {
      const bool cancelled = job.progress != nullptr && job.progress->cancelled();
      if (!cancelled && Clock::now() < job.deadline) continue;
      stopping = true;
      why = cancelled ? ProcessEnd::kCancelled : ProcessEnd::kTimeout;
      kill_at = Clock::now() + std::chrono::seconds(5);
      child.signal(SIGTERM);
    } else if (Clock::now() >= kill_at) {
      child.signal(SIGKILL);  // a guard that does not answer: the group is all that can be had
      child.signal_group(SIGKILL);
      break;
    }
  }
  // The group goes with the guard, should that have been killed before its children.
  child.await_end();
  child.signal_group(SIGKILL);
  child.reap();
  while (has_output) {
    size_t before = 0;
    const bool more = drain(output.get(), [&](std::string_view piece) {
      before = piece.size();
      take(piece);
    });
    has_output = more && before != 0;
  }
  end = read_report(reported);
  if (stopping) end = {why, 0};
  return end;
}

ProcessEnd run_and_read(const std::string& guard, ProcessJob job, size_t limit,
                        std::string* output) {
  job.on_output = [&](std::string_view piece) {
    output->append(piece.substr(0, limit - std::min(limit, output->size())));
  };
  return run_process(guard, job);
}

}  // namespace opdock

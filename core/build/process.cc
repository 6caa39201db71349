// SPDX-License-Identifier: Apache-2.0
#include "build/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/child.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/spawn.h"

namespace opdock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPollMilliseconds = 40;  // how often cancelled() is called

bool make_pipe(Fd* read_end, Fd* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *read_end = Fd(ends[0]);
  *write_end = Fd(ends[1]);
  fcntl(read_end->get(), F_SETFL, O_NONBLOCK);
  return true;
}

// Passes what can be read now to `take`, at most one buffer. Returns false at the end of the file.
template <typename F>
bool drain(int fd, F&& take) {
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count > 0) {
      take(std::string_view(buffer, static_cast<size_t>(count)));
      // Reads only once, because a program that prints without end must not delay the check for
      // cancellation.
      return true;
    }
    if (count == 0) return false;
    if (errno != EINTR) return errno == EAGAIN;
  }
}

// Parses the guard's report. A guard that was killed before it could write one counts as a program
// that was killed.
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
    // The pipes show the end by being closed, and a forked child would keep them open.
    const NoFork no_fork;
    if (!make_pipe(&output, &output_write) || !make_pipe(&report, &report_write)) {
      end.number = errno;
      return end;
    }
    Program program{{guard, std::to_string(getpid())}, &job.environment, job.folder};
    program.words.insert(program.words.end(), job.arguments.begin(), job.arguments.end());
    const FdMap files[] = {
        {output_write.get(), 1}, {output_write.get(), 2}, {report_write.get(), 3}};
    end.number = spawn(program, files, &child);
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
    // A hook has forked, and this is the child: the guard belongs to the parent.
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
      child.signal(SIGKILL);  // the guard does not answer; only its group is still reachable
      child.signal_group(SIGKILL);
      break;
    }
  }
  // Kills the group too, in case the guard was killed before its children.
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

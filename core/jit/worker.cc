// SPDX-License-Identifier: Apache-2.0
#include "jit/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/installed.h"
#include "base/mutex.h"
#include "base/spawn.h"

namespace opdock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWorkerPoll{50};
constexpr size_t kMaxWords = 4096;  // bytes of stderr that are kept, from its end

std::string text_of(const ChildEnd& end) {
  if (end.by_signal) {
    const char* name = sigabbrev_np(end.number);
    return std::string("ended by SIG") + (name != nullptr ? name : "?");
  }
  return "ended with status " + std::to_string(end.number);
}

}  // namespace

std::string compile_worker_path() {
  return installed().program("opdock-compile");
}

CompileWorker::CompileWorker(const std::string& program)
    : program_(program.empty() ? compile_worker_path() : program) {}

CompileWorker::~CompileWorker() {
  end();
}

Status CompileWorker::start() {
  const auto failed = [](const std::string& what, int error) {
    return Status{OPDOCK_INTERNAL, what + ": " + std::strerror(error)};
  };
  if (program_.empty()) return {OPDOCK_INTERNAL, "no opdock-compile where Opdock is installed"};
  const NoFork no_fork;  // a forked child would keep the socket open, whose closing shows the end
  int ends[2], words[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed("socketpair", errno);
  }
  Fd socket(ends[0]);
  const Fd others_socket(ends[1]);
  if (pipe2(words, O_CLOEXEC) != 0) return failed("pipe", errno);
  Fd errors(words[0]);
  const Fd others_errors(words[1]);
  const FdMap files[] = {{ends[1], 0}, {ends[1], 1}, {words[1], 2}};
  if (const int error = spawn({{program_}}, files, &child_)) return failed(program_, error);
  socket_ = socket.release();
  errors_ = errors.release();
  fcntl(socket_, F_SETFL, O_NONBLOCK);
  fcntl(errors_, F_SETFL, O_NONBLOCK);
  words_.clear();
  return {};
}

void CompileWorker::end() {
  if (socket_ < 0) return;
  close(socket_);
  close(errors_);
  // In a child that a hook has forked, and in which the hook returned, the worker is the parent's.
  if (forks() == forks_) {
    child_.signal(SIGKILL);
    child_.reap();
  }
  socket_ = errors_ = -1;
}

void CompileWorker::read_words() {
  char buffer[65536];
  const ssize_t count = read(errors_, buffer, sizeof buffer);
  if (count <= 0) return;
  words_.append(buffer, static_cast<size_t>(count));
  if (words_.size() > kMaxWords) words_.erase(0, words_.size() - kMaxWords);
}

std::string CompileWorker::last_words() const {
  std::string text = words_;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : "; its last words:\n" + text;
}

bool CompileWorker::compile(const worker::Request& request, std::chrono::milliseconds deadline,
                            Progress* progress, CompileResult* result,
                            std::vector<Reason>* reasons) {
  *result = {};
  const auto give_up = [&](const std::string& found) {
    reasons->push_back(
        make_reason(Code::kJitWorker, found + last_words(), "an image for " + request.job.arch));
    end();
    return false;
  };
  if (socket_ < 0) {
    if (const Status started = start(); !started.ok()) {
      reasons->push_back(make_reason(Code::kJitWorker, started.text, "a process to compile in"));
      return false;
    }
  }
  const std::string message = encode(request);
  const Clock::time_point latest = Clock::now() + deadline;
  size_t sent = 0;
  std::string answer;
  bool closed = false;
  for (;;) {
    if (progress != nullptr && progress->cancelled()) {
      end();
      result->fault = CompileFault::kCancelled;
      return true;
    }
    if (Clock::now() >= latest) {
      return give_up(fmt::format("no answer of opdock-compile within {:g} s",
                                 static_cast<double>(deadline.count()) / 1000));
    }
    pollfd watched[] = {
        {socket_, static_cast<short>(sent < message.size() ? POLLIN | POLLOUT : POLLIN), 0},
        {errors_, POLLIN, 0}};
    if (poll(watched, 2, static_cast<int>(kWorkerPoll.count())) < 0 && errno != EINTR) {
      return give_up(std::string("poll: ") + std::strerror(errno));
    }
    char buffer[65536];
    if (watched[1].revents != 0) read_words();
    if ((watched[0].revents & POLLOUT) != 0) {
      const ssize_t count =
          send(socket_, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<size_t>(count);
    }
    if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const ssize_t count = read(socket_, buffer, sizeof buffer);
      if (count > 0) answer.append(buffer, static_cast<size_t>(count));
      closed = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    }
    worker::Head head{};
    if (answer.size() >= sizeof head) {
      std::memcpy(&head, answer.data(), sizeof head);
      if (!plausible(head)) return give_up("nonsense in opdock-compile's answer");
      if (answer.size() - sizeof head >= head.bytes) {
        const auto texts = worker::decode(head, answer.substr(sizeof head, head.bytes));
        const auto decoded = texts ? worker::decode_result(*texts) : std::nullopt;
        if (!decoded || answer.size() - sizeof head != head.bytes) {
          return give_up("nonsense in opdock-compile's answer");
        }
        *result = *decoded;
        return true;
      }
    }
    if (closed) {
      // The worker has closed its end, so it should be ending, unless it only pretends to.
      std::optional<ChildEnd> ended;
      for (int i = 0; i < 50 && !child_.try_reap(&ended); ++i) usleep(10000);
      read_words();
      const std::string how = ended ? text_of(*ended) : "closed its output";
      reasons->push_back(make_reason(Code::kJitWorker,
                                     "an opdock-compile that " + how + last_words(),
                                     "an image for " + request.job.arch));
      end();
      return false;
    }
  }
}

}  // namespace opdock

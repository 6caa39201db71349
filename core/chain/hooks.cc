// SPDX-License-Identifier: Apache-2.0
#include "chain/hooks.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace opdock {
namespace {

constexpr size_t kBarCells = 16;

// Returns the text, cut to fit into one line: a line that wraps cannot be overwritten.
std::string one_line(std::string_view text, double fraction) {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
  size_t room = known ? size.ws_col - 1u : 79;
  std::string bar;
  if (fraction >= 0 && room > 60) {
    const size_t full = std::min(kBarCells, static_cast<size_t>(fraction * kBarCells));
    bar = " [" + std::string(full, '#') + std::string(kBarCells - full, '.') + "]";
    room -= bar.size();
  }
  std::string line = "opdock: " + std::string(text.substr(0, text.find('\n')));
  // Each byte counts as a column. Other alphabets have fewer columns, so their text is only cut
  // earlier.
  while (line.size() > room) line.pop_back();
  while (!line.empty() && (static_cast<uint8_t>(line.back()) & 0xC0) == 0xC0) line.pop_back();
  return line + bar;
}

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

}  // namespace

Hooks Hooks::of(const opdock_options* options) {
  Hooks hooks;
  if (options == nullptr) return hooks;
  if (OPDOCK_HAS(options, opdock_options, hooks_context)) hooks.context = options->hooks_context;
  if (OPDOCK_HAS(options, opdock_options, progress)) hooks.progress = options->progress;
  if (OPDOCK_HAS(options, opdock_options, cancelled)) hooks.cancelled = options->cancelled;
  if (OPDOCK_HAS(options, opdock_options, waiting)) hooks.waiting = options->waiting;
  if (OPDOCK_HAS(options, opdock_options, references) && options->references != nullptr &&
      OPDOCK_HAS(options->references, opdock_references, run)) {
    hooks.references = options->references;
  }
  return hooks;
}

HookedProgress::HookedProgress(const Hooks& hooks, std::atomic<bool>* announced)
    : hooks_(hooks), terminal_(is_terminal()), announced_(announced) {}

HookedProgress::~HookedProgress() {
  finish("");
}

void HookedProgress::step(std::string_view text, double fraction) {
  const ForkAwareGuard guard(&telling_);
  if (!guard || is_parents()) return;
  const bool is_first = !begun_;
  begun_ = true;
  if (hooks_.progress != nullptr) {
    hooks_.progress(hooks_.context, std::string(text).c_str(), fraction);
  } else if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", one_line(text, fraction).c_str());
  } else if (is_first && (announced_ == nullptr || !announced_->exchange(true))) {
    std::fprintf(stderr, "opdock: %s …\n", std::string(text).c_str());
  }
}

bool HookedProgress::cancelled() {
  if (is_parents()) return true;
  return hooks_.cancelled != nullptr && hooks_.cancelled(hooks_.context) != 0;
}

void HookedProgress::finish(std::string_view text) {
  const ForkAwareGuard guard(&telling_);
  if (!guard || is_parents() || !begun_) return;
  begun_ = false;
  if (hooks_.progress != nullptr) {
    if (!text.empty()) hooks_.progress(hooks_.context, std::string(text).c_str(), 1);
    hooks_.progress(hooks_.context, "", 1);
    return;
  }
  if (terminal_) std::fputs("\r\033[K", stderr);
  if (!text.empty()) std::fprintf(stderr, "opdock: %s\n", std::string(text).c_str());
}

}  // namespace opdock

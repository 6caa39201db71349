// SPDX-License-Identifier: Apache-2.0
#include "at_exit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "stream.h"

namespace softgpu {

namespace {

void append_line(const std::string& path, const nlohmann::json& line) {
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::fprintf(stderr, "OPDOCK_SOFTGPU: cannot write %s\n", path.c_str());
  }
  if (file >= 0) close(file);
}

void write_finding(const std::string& text) {
  if (!config().findings.empty()) {
    append_line(config().findings, {{"finding", text}, {"pid", getpid()}});
  }
}

// A device that failed cannot release memory, so its memory is not reported.
void report_leaks() {
  for (const auto& [address, memory] : state().memory) {
    if (memory.in_graph || (memory.context && memory.context->failed != kSuccess)) continue;
    const DeviceContext* const context = memory.context;
    const std::string place =
        memory.pinned ? "of pinned host memory"
                      : "of memory of " + std::string(context->gpu->amd ? "rocm:" : "cuda:") +
                            std::to_string(context->device);
    report_finding("leak: " + std::to_string(memory.size) + " bytes " + place + ", made by " +
                   memory.maker + ", were not released before the process ended");
  }
}

// Writes nothing for a process that launched nothing, because it may share the file with one that
// did.
void write_counters() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Counters& kernel : counters()) {
    nlohmann::ordered_json& row = list.emplace_back();
    row["kernel"] = kernel.kernel;
    for (const auto& [name, value] : kCounters) row[name] = kernel.*value;
  }
  if (list.empty()) return;
  std::ofstream file(config().counters);
  file << list.dump(1) << "\n";
  if (!file) {
    std::fprintf(stderr, "OPDOCK_SOFTGPU: cannot write %s\n", config().counters.c_str());
  }
}

void finish() {
  if (state().init_pid != getpid()) return;  // a forked child has no streams
  Lock lock = lock_state();
  wait_for_context(&lock, nullptr);
  stop_threads(&lock);  // from here on the process has no stream threads
  if (config().leaks) report_leaks();
  if (!config().counters.empty()) write_counters();
}

}  // namespace

void finish_at_exit() {
  std::atexit(finish);
}

void write_findings() {
  static size_t written = 0;
  const std::vector<std::string> all = findings();
  if (written > all.size()) written = 0;  // the engine's list was cleared
  for (; written < all.size(); ++written) write_finding(all[written]);
}

void report_finding(const std::string& text) {
  std::fprintf(stderr, "softgpu: %s\n", text.c_str());
  write_finding(text);
}

}  // namespace softgpu

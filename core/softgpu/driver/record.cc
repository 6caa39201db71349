// SPDX-License-Identifier: Apache-2.0
#include "record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace softgpu {

void record(const char* event, std::initializer_list<Member> members) {
  nlohmann::json object = nlohmann::json::object();
  for (const Member& member : members)
    std::visit([&](const auto& value) { object[member.name] = value; }, member.value);
  record_object(event, object);
}

void record_object(const char* event, const nlohmann::json& members) {
  const char* const path = std::getenv("OPDOCK_SOFTGPU_RECORD");
  if (!path || !*path) return;
  nlohmann::ordered_json line = {{"event", event}, {"pid", getpid()}};
  for (const auto& [name, value] : members.items()) line[name] = value;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::fprintf(stderr, "OPDOCK_SOFTGPU_RECORD: cannot write %s\n", path);
    std::_Exit(3);
  }
  close(file);
}

std::string handle_text(const void* handle) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", reinterpret_cast<size_t>(handle));
  return text;
}

}  // namespace softgpu

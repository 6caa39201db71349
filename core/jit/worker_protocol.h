// The requests to and answers of opdock-compile: messages of length-prefixed texts over a socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "jit/nvrtc.h"
#include "note/note.h"

namespace opdock::worker {

// A message is a Head, and then each text with its length before it; little-endian.
inline constexpr uint32_t kMagic = 0x314a504f;         // "OPJ1"
inline constexpr uint64_t kMaxMessage = 256ull << 20;  // more is nonsense, or an attack
inline constexpr uint32_t kMaxTexts = 1u << 20;

struct Head {
  uint32_t magic;
  uint32_t texts;
  uint64_t bytes;  // behind the head
};

inline std::string encode(const std::vector<std::string>& texts) {
  std::string body;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    body.append(reinterpret_cast<const char*>(&size), sizeof size);
    body += text;
  }
  const Head head{kMagic, static_cast<uint32_t>(texts.size()), body.size()};
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + body;
}

inline bool plausible(const Head& head) {
  return head.magic == kMagic && head.texts <= kMaxTexts && head.bytes <= kMaxMessage;
}

inline std::optional<std::vector<std::string>> decode(const Head& head, const std::string& body) {
  std::vector<std::string> texts;
  size_t at = 0;
  for (uint32_t i = 0; i < head.texts; ++i) {
    uint64_t size = 0;
    if (body.size() - at < sizeof size) return std::nullopt;
    std::memcpy(&size, body.data() + at, sizeof size);
    at += sizeof size;
    if (size > body.size() - at) return std::nullopt;
    texts.push_back(body.substr(at, size));
    at += size;
  }
  if (at != body.size()) return std::nullopt;
  return texts;
}

// Reads texts one after another. ok() is false once a read went past the end or a text was no
// number.
class Texts {
 public:
  explicit Texts(const std::vector<std::string>& texts) : texts_(texts) {}
  std::string text() {
    if (at_ < texts_.size()) return texts_[at_++];
    failed_ = true;
    return {};
  }
  uint32_t number() {
    const std::string digits = text();
    uint64_t value = 0;
    for (char c : digits) {
      if (c < '0' || c > '9' || value > kMaxTexts) failed_ = true;
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    if (digits.empty() || value > kMaxTexts) failed_ = true;
    return failed_ ? 0 : static_cast<uint32_t>(value);
  }
  std::vector<std::string> list() {
    std::vector<std::string> found;
    for (uint32_t count = number(); count > 0 && !failed_; --count) found.push_back(text());
    return found;
  }
  bool ok() const { return !failed_; }

 private:
  const std::vector<std::string>& texts_;
  size_t at_ = 0;
  bool failed_ = false;
};

// A job for the compiler in `library`.
struct Request {
  Backend backend = Backend::kCuda;
  std::string library;
  CompileJob job;
};

// A job without a program asks whether hipRTC knows its architecture. If not, the answer has the
// fault kArch and the names of the known ones in the log. It is ok if hipRTC knows the
// architecture, or if that cannot be found out.
inline bool asks_for_arch(const Request& request) {
  return request.backend == Backend::kRocm && request.job.program.empty() &&
         request.job.sources.empty();
}

inline void add_list(const std::vector<std::string>& list, std::vector<std::string>* out) {
  out->push_back(std::to_string(list.size()));
  out->insert(out->end(), list.begin(), list.end());
}

inline std::string encode(const Request& request) {
  const CompileJob& job = request.job;
  std::vector<std::string> texts = {std::to_string(static_cast<uint32_t>(request.backend)),
                                    request.library, job.arch, job.program_name, job.program};
  texts.push_back(std::to_string(job.headers.size()));
  for (const SourceText& header : job.headers) {
    texts.push_back(header.name);
    texts.emplace_back(header.text.view());
  }
  add_list(job.sources, &texts);
  add_list(job.kernels, &texts);
  add_list(job.options, &texts);
  return encode(texts);
}

inline std::optional<Request> decode_request(const std::vector<std::string>& given) {
  Texts texts(given);
  Request request;
  request.backend = static_cast<Backend>(texts.number());
  request.library = texts.text();
  request.job.arch = texts.text();
  request.job.program_name = texts.text();
  request.job.program = texts.text();
  for (uint32_t count = texts.number(); count > 0 && texts.ok(); --count) {
    std::string name = texts.text();
    request.job.headers.push_back({std::move(name), texts.text()});
  }
  request.job.sources = texts.list();
  request.job.kernels = texts.list();
  request.job.options = texts.list();
  if (!texts.ok()) return std::nullopt;
  return request;
}

inline std::string encode(const CompileResult& result) {
  std::vector<std::string> texts = {
      result.ok ? "1" : "0", std::to_string(static_cast<int>(result.fault)), result.log,
      std::string(result.image.begin(), result.image.end()), std::to_string(result.names.size())};
  for (const auto& [expression, in_image] : result.names) {
    texts.push_back(expression);
    texts.push_back(in_image);
  }
  return encode(texts);
}

inline std::optional<CompileResult> decode_result(const std::vector<std::string>& given) {
  Texts texts(given);
  CompileResult result;
  result.ok = texts.number() == 1;
  const uint32_t fault = texts.number();
  result.fault = static_cast<CompileFault>(fault);
  result.log = texts.text();
  const std::string image = texts.text();
  result.image.assign(image.begin(), image.end());
  for (uint32_t count = texts.number(); count > 0 && texts.ok(); --count) {
    std::string expression = texts.text();
    result.names.emplace_back(std::move(expression), texts.text());
  }
  const bool sound = fault <= static_cast<uint32_t>(CompileFault::kCancelled) &&
                     result.ok == (result.fault == CompileFault::kNone);
  if (!texts.ok() || !sound) return std::nullopt;
  return result;
}

}  // namespace opdock::worker

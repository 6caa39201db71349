// SPDX-License-Identifier: Apache-2.0
#include "jit/keep.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/sha256.h"

namespace opdock {
namespace {

// Returns the program or, if only the names of its sources are known, a text that includes them.
std::string program_of(const CompileRequest& request) {
  if (!request.program.empty()) return request.program;
  std::string text;
  for (const std::string& source : request.sources) text += "#include \"" + source + "\"\n";
  return text;
}

std::set<std::string> kernels_of(const CompileRequest& request) {
  return {request.kernels.begin(), request.kernels.end()};
}

std::string image_digest(ImageKind kind, std::span<const uint8_t> image) {
  Sha256 hash;
  hash.add(image);
  // PTX is hashed as a driver gets it: with a NUL at its end, because no length is passed.
  const uint8_t end = 0;
  if (kind == ImageKind::kPtx && (image.empty() || image.back() != end)) hash.add({&end, 1});
  return to_hex(hash.finish());
}

// A source may hold bytes that are not UTF-8, for example in a comment; they are replaced.
std::string text_of(const nlohmann::json& json) {
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + "." + unique_name();
  Fd file;
  int error = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666, &file);
  if (error != 0) return error;
  error = write_all(file.get(), text);
  file = Fd();
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

}  // namespace

std::string keep_folder() {
  const char* const folder = secure_getenv("OPDOCK_JIT_KEEP");
  return folder == nullptr ? std::string() : folder;
}

std::string source_digest(const CompileRequest& request) {
  FieldHasher hasher;
  hasher.add(program_of(request)).add(request.program_name);
  std::set<std::pair<std::string_view, std::string_view>> headers;
  for (const SourceText& header : request.headers) headers.emplace(header.name, header.text);
  for (const auto& [name, text] : headers) hasher.add("header").add(name).add(text);
  for (const std::string& option : request.options) hasher.add("option").add(option);
  for (const std::string& kernel : kernels_of(request)) hasher.add("kernel").add(kernel);
  return to_hex(hasher.finish());
}

void keep_source(const std::string& folder, const CompileRequest& request, ImageKind kind,
                 std::span<const uint8_t> image,
                 const std::vector<std::pair<std::string, std::string>>& names,
                 std::vector<Reason>* reasons) {
  nlohmann::json headers = nlohmann::json::object();
  for (const SourceText& header : request.headers) headers[header.name] = header.text.view();
  const nlohmann::json source = {{"program", program_of(request)},
                                 {"program_name", request.program_name},
                                 {"headers", headers},
                                 {"options", request.options},
                                 {"kernels", kernels_of(request)}};
  const std::string digest = source_digest(request);
  nlohmann::json kernels = nlohmann::json::object();
  for (const auto& [expression, in_image] : names) kernels[in_image] = expression;
  const nlohmann::json entry = {{"backend", to_text(request.backend)},
                                {"arch", request.arch},
                                {"source", digest},
                                {"kernels", kernels}};
  // Write the source first, so that whoever finds the image's file finds the source that it names.
  int error = make_folders(folder);
  if (error == 0) error = replace_file(folder + "/source-" + digest + ".json", text_of(source));
  if (error == 0)
    error = replace_file(folder + "/" + image_digest(kind, image) + ".json", text_of(entry));
  if (error == 0) return;
  reasons->push_back(make_reason(Code::kJitKeep, folder + ": " + error_text(error),
                                 "a folder for the source of " + request.name));
}

}  // namespace opdock

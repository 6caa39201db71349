// SPDX-License-Identifier: Apache-2.0
#include "jit/request.h"

#include <algorithm>
#include <set>

#include "base/sha256.h"
#include "facts/arch.h"
#include "jit/includes.h"

namespace opdock {
namespace {

// The beginnings of options that Opdock sets itself.
constexpr std::string_view kOwnOptions[] = {"--gpu-architecture", "-arch", "--offload-arch"};

bool refuse(std::vector<Reason>* reasons, Code code, std::string found, std::string wanted,
            std::string advice) {
  reasons->push_back({code, std::move(found), std::move(wanted), std::move(advice)});
  return false;
}

bool is_arch(const CompileRequest& request) {
  return request.backend == Backend::kRocm ? parse_gfx_arch(request.arch).has_value()
                                           : parse_cuda_arch(request.arch).has_value();
}

// Returns the driver's version if it matters, that is, decides whether the driver knows the PTX.
std::string driver_field(const CompileRequest& request, const JitContext& context) {
  if (output_kind(request) != ImageKind::kPtx || !context.cuda_driver) return {};
  return context.cuda_driver->text();
}

}  // namespace

ImageKind output_kind(const CompileRequest& request) {
  if (request.backend == Backend::kRocm) return ImageKind::kCodeObject;
  return request.arch.starts_with("compute_") ? ImageKind::kPtx : ImageKind::kCubin;
}

std::string subject_of(const CompileRequest& request) {
  return request.name + " for " + request.arch;
}

bool check_request(const CompileRequest& request, std::vector<Reason>* reasons) {
  if (!is_arch(request)) {
    return refuse(reasons, Code::kJitOption, "the architecture \"" + request.arch + "\"",
                  request.backend == Backend::kRocm ? "one such as gfx90a"
                                                    : "one such as sm_90a, or compute_90 for PTX",
                  "correct the architecture");
  }
  for (const std::string& option : request.options) {
    for (std::string_view own : kOwnOptions) {
      if (!option.starts_with(own)) continue;
      return refuse(reasons, Code::kJitOption, "\"" + option + "\"",
                    "no architecture among the options", "give the device or `arch` instead");
    }
    if (option.find('\0') != option.npos || option.empty()) {
      return refuse(reasons, Code::kJitOption, "an empty option, or one with a NUL in it",
                    "options as texts", "remove it");
    }
  }
  std::set<std::string> names;
  for (const SourceText& header : request.headers) {
    if (names.insert(header.name).second) continue;
    return refuse(reasons, Code::kJitSource, "two headers called \"" + header.name + "\"",
                  "each name once", "rename one of them");
  }
  for (const std::string& source : request.sources) {
    if (names.count(source) != 0) continue;
    return refuse(reasons, Code::kJitSource, "no text of the source \"" + source + "\"",
                  "it among the headers", "add it");
  }
  if (request.program.empty() && request.sources.empty()) {
    return refuse(reasons, Code::kJitSource, "an empty program", "C++ with kernels in it",
                  "give the source's text");
  }
  for (const std::string& kernel : request.kernels) {
    if (!kernel.empty() && kernel.find('\0') == kernel.npos) continue;
    return refuse(reasons, Code::kJitKernel, "an empty kernel name", "a name such as \"f<float>\"",
                  "remove it");
  }
  return true;
}

CacheRequest cache_request(const CompileRequest& request, const JitContext& context,
                           const std::vector<SourceText>& outside) {
  CacheRequest out;
  out.kind = "kernels";
  out.subject = subject_of(request);
  const auto add = [&](std::string name, std::string value) {
    out.fields.push_back({std::move(name), std::move(value)});
  };
  const auto text = [](std::string_view contents) { return to_hex(sha256(contents)); };
  add("entry", "1");  // version of an entry's contents
  add("opdock", OPDOCK_VERSION);
  add("backend", std::string(to_text(request.backend)));
  add("arch", request.arch);
  add("output", std::string(to_text(output_kind(request))));
  add("program " + request.program_name, text(request.program));
  for (const std::string& source : request.sources) add("source", source);
  std::vector<const SourceText*> headers;
  for (const SourceText& header : request.headers) headers.push_back(&header);
  std::sort(headers.begin(), headers.end(),
            [](const SourceText* a, const SourceText* b) { return a->name < b->name; });
  // Opdock's own headers are one field: they are many, and change only with Opdock.
  FieldHasher own;
  bool has_own = false;
  for (const SourceText* header : headers) {
    const std::string digest = header->digest.empty() ? text(header->text) : header->digest;
    if (header->text.is_built_in()) {
      own.add(header->name).add(digest);
      has_own = true;
    } else {
      add("header " + header->name, digest);
    }
  }
  if (has_own) add("Opdock's device headers", to_hex(own.finish()));
  for (const SourceText& header : outside)
    add("outside header " + header.name, std::string(header.text.view()));
  // Only a folder's contents matter, not where it is.
  const IncludeOptions includes = include_options(request.options);
  const std::set<std::string> folders(includes.folders.begin(), includes.folders.end());
  size_t number = 0;
  for (const std::string& option : request.options) {
    std::string value = option;
    for (const std::string& folder : folders) {
      if (value.ends_with(folder)) value = value.substr(0, value.size() - folder.size());
    }
    add("option " + std::to_string(++number), value);
  }
  std::set<std::string> kernels(request.kernels.begin(), request.kernels.end());
  for (const std::string& kernel : kernels) add("kernel", kernel);
  if (const std::string driver = driver_field(request, context); !driver.empty()) {
    add("driver", driver);
  }
  return out;
}

bool read_names(std::span<const uint8_t> names,
                std::vector<std::pair<std::string, std::string>>* out) {
  out->clear();
  if (!names.empty() && names.back() != 0) return false;
  const char* at = reinterpret_cast<const char*>(names.data());
  const char* const end = at + names.size();
  while (at < end) {
    std::string expression = at;
    at += expression.size() + 1;
    if (at >= end) return false;
    std::string in_image = at;
    at += in_image.size() + 1;
    out->emplace_back(std::move(expression), std::move(in_image));
  }
  return true;
}

}  // namespace opdock

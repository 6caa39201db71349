// SPDX-License-Identifier: Apache-2.0
#include "pack/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "arch/compiler_archs.h"
#include "base/files.h"
#include "base/sha256.h"
#include "jit/keep.h"
#include "pack/hip_images.h"

namespace opdock::pack {

static_assert(std::endian::native == std::endian::little, "the table is little-endian");

std::vector<SourceText> read_device_sources(const Manifest& manifest,
                                            const std::filesystem::path& vocabulary,
                                            std::vector<std::filesystem::path>* files,
                                            std::vector<std::string>* errors) {
  namespace fs = std::filesystem;
  std::vector<SourceText> sources;
  std::set<std::string> seen;
  auto take = [&](const fs::path& path, const std::string& name, const char* named_by) {
    errno = 0;
    std::optional<std::string> text = read_file(path);
    if (!text) {
      const std::string cause = errno == 0 ? "no regular file" : error_text(errno);
      errors->push_back(
          fmt::format("{}: found {}, wanted a device source that can be read; check {}",
                      path.string(), cause, named_by));
    } else if (name.size() >= sizeof(ImageEntry::arch)) {
      errors->push_back(
          fmt::format("{}: found a device source's name of {} bytes, wanted at most {}",
                      path.string(), name.size(), sizeof(ImageEntry::arch) - 1));
    } else if (!seen.insert(name).second) {
      errors->push_back(
          fmt::format("{}: found a second device source called \"{}\", wanted each "
                      "file name once",
                      path.string(), name));
    } else {
      files->push_back(path);
      sources.push_back({name, *text});
    }
  };
  if (manifest.device)
    for (const std::string& source : manifest.device->sources)
      take(manifest.folder() / source, fs::path(source).filename().string(),
           "[device] sources in plugin.toml");

  std::error_code failed;
  std::vector<fs::path> headers;
  for (const auto& entry : fs::recursive_directory_iterator(vocabulary, failed))
    if (entry.path().extension() == ".cuh") headers.push_back(entry.path());
  if (headers.empty())
    errors->push_back(
        fmt::format("{}: found no *.cuh, wanted the folder of opdock/device.cuh "
                    "(--include)",
                    vocabulary.string()));
  std::sort(headers.begin(), headers.end());
  for (const fs::path& header : headers)
    take(header, header.lexically_relative(vocabulary).generic_string(), "--include");
  return sources;
}

namespace {

class Compilation {
 public:
  Compilation(const ImageRequest& request, std::vector<Image>* images,
              std::vector<std::string>* errors)
      : request_(request), images_(images), errors_(errors) {
    job_.headers = request.sources;
    for (const std::string& source : request.manifest->device->sources)
      job_.sources.push_back(std::filesystem::path(source).filename().string());
    job_.kernels = request.manifest->device->kernels;
  }

  // Adds the cubin, and keeps PTX if the list has +PTX. For a suffixed architecture it is PTX of
  // the plain one, because its own would run nowhere else.
  void compile(const CudaTarget& target) {
    const bool is_plain = target.suffix == '\0';
    job_.with_ptx = target.ptx && is_plain;
    const std::optional<CompileResult> result = compile_for(target, target.sm());
    if (!result) return;
    // Warnings are the same for every architecture, so only the first are printed.
    if (images_->empty() && !result->log.empty()) std::fprintf(stderr, "%s\n", result->log.c_str());
    images_->push_back(image_of(*result, result->image, ImageKind::kCubin, target.sm()));
    if (!target.ptx) return;
    Image& ptx = ptx_[target.number];
    if (is_plain) ptx = image_of(*result, result->ptx, ImageKind::kPtx, target.compute());
  }

  // Adds the PTX, after all cubins; compiles PTX that did not come with a cubin.
  void add_ptx() {
    job_.with_ptx = false;
    for (auto& [number, ptx] : ptx_) {
      if (ptx.bytes.empty()) {
        const CudaTarget plain = {.number = number};
        const std::optional<CompileResult> result = compile_for(plain, plain.compute());
        if (!result) return;
        ptx = image_of(*result, result->image, ImageKind::kPtx, plain.compute());
      }
      images_->push_back(std::move(ptx));
    }
  }

 private:
  // Adds errors to the constructor's `errors`.
  std::optional<CompileResult> compile_for(const CudaTarget& target, const std::string& arch) {
    std::vector<const Nvrtc*> able;
    for (const Nvrtc* compiler : request_.compilers) {
      if (archs_of_nvrtc(compiler->version(), compiler->archs()).knows(target))
        able.push_back(compiler);
    }
    const std::string where =
        fmt::format("{}:{}", request_.manifest->path.string(), request_.manifest->device->line);
    compiler_ = choose_nvrtc(able, target.number);
    if (!compiler_) {
      errors_->push_back(fmt::format("{}: no compiler here knows {}", where, arch));
      return std::nullopt;
    }
    job_.arch = arch;
    job_.options.clear();
    if (!request_.is_optimized && compiler_->version() >= Version{12, 9})
      job_.options.push_back("--Ofast-compile=max");
    if (request_.cache != nullptr) {
      if (std::optional<CompileResult> made = request_.cache->find(job_, *compiler_)) return made;
    }
    CompileResult result = compiler_->compile(job_);
    if (result.ok && request_.cache != nullptr) request_.cache->keep(job_, *compiler_, result);
    if (result.ok) return result;
    errors_->push_back(
        fmt::format("{}: device code does not compile for {}:\n{}", where, arch, result.log));
    return std::nullopt;
  }

  Image image_of(const CompileResult& result, const std::vector<uint8_t>& bytes, ImageKind kind,
                 const std::string& arch) const {
    Image image;
    image.kind = kind;
    image.arch = arch;
    image.toolkit = compiler_->version();
    image.bytes.assign(bytes.begin(), bytes.end());
    image.names = result.names;
    return image;
  }

  const ImageRequest& request_;
  std::vector<Image>* images_;
  std::vector<std::string>* errors_;
  CompileJob job_;
  const Nvrtc* compiler_ = nullptr;  // the compiler that was used last
  std::map<int, Image> ptx_;         // by architecture; without bytes: yet to be compiled
};

}  // namespace

std::vector<Image> make_images(const ImageRequest& request, std::vector<std::string>* errors) {
  std::vector<Image> images;
  if (!request.compilers.empty()) {
    Compilation compilation(request, &images, errors);
    for (const CudaTarget& target : request.archs) {
      compilation.compile(target);
      if (!errors->empty()) return images;  // the other architectures would give the same errors
    }
    compilation.add_ptx();
    if (!errors->empty()) return images;
  }
  for (Image& image : make_hip_images(request, errors)) images.push_back(std::move(image));
  if (!errors->empty()) return images;
  // The source is always packed, with the vocabulary that it was written against, so that an image
  // for a GPU that is not among these can be made later. Its kernels have no lowered names yet.
  for (const SourceText& source : request.sources) {
    Image image;
    image.backend = request.manifest->is_for(Backend::kCuda) ? Backend::kCuda : Backend::kRocm;
    image.arch = source.name;
    image.bytes = std::string(source.text.view());
    const std::vector<std::string>& own = request.manifest->device->sources;
    if (source.name == std::filesystem::path(own.front()).filename().string())
      for (const std::string& kernel : request.manifest->device->kernels)
        image.names.emplace_back(kernel, "");
    images.push_back(std::move(image));
  }
  return images;
}

void keep_sources(const ImageRequest& request, const std::vector<Image>& images) {
  const std::string folder = keep_folder();
  if (folder.empty()) return;
  CompileRequest source;
  source.name = request.manifest->name;
  source.headers = request.sources;
  for (const std::string& file : request.manifest->device->sources)
    source.sources.push_back(std::filesystem::path(file).filename().string());
  source.kernels = request.manifest->device->kernels;
  std::vector<Reason> notices;
  for (const Image& image : images) {
    if (image.kind == ImageKind::kSource) continue;
    source.backend = image.backend;
    source.arch = image.arch;
    const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(image.bytes.data());
    keep_source(folder, source, image.kind, {bytes, image.bytes.size()}, image.names, &notices);
  }
  if (!notices.empty())
    std::fprintf(stderr, "opdock-pack: notice: %s\n", to_text(notices.front()).c_str());
}

static void pad(std::string* bytes, size_t alignment) {
  while (bytes->size() % alignment != 0) bytes->push_back('\0');
}

std::string image_table(const std::vector<Image>& images) {
  ImageTableHead head{};
  std::memcpy(head.magic, kImageMagic, sizeof(head.magic));
  head.count = static_cast<uint32_t>(images.size());
  head.entry_size = sizeof(ImageEntry);
  std::vector<ImageEntry> entries(images.size());
  std::string body(sizeof(head) + entries.size() * sizeof(ImageEntry), '\0');
  for (size_t i = 0; i < images.size(); ++i) {
    const Image& image = images[i];
    ImageEntry& entry = entries[i];
    entry = {};
    entry.backend = static_cast<uint32_t>(image.backend);
    entry.kind = static_cast<uint32_t>(image.kind);
    std::memcpy(entry.arch, image.arch.data(), std::min(image.arch.size(), sizeof(entry.arch) - 1));
    entry.toolkit_major = image.toolkit.major();
    entry.toolkit_minor = image.toolkit.minor();
    entry.names_offset = body.size();
    for (const auto& [expression, lowered] : image.names) {
      body.append(expression).push_back('\0');
      body.append(lowered).push_back('\0');
    }
    entry.names_size = body.size() - entry.names_offset;
    pad(&body, 64);
    entry.offset = body.size();
    entry.size = image.bytes.size();
    body += image.bytes;
    pad(&body, 8);
    Digest digest = sha256(std::string_view(image.bytes));
    std::memcpy(entry.sha256, digest.data(), digest.size());
  }
  std::memcpy(body.data(), &head, sizeof(head));
  std::memcpy(body.data() + sizeof(head), entries.data(), entries.size() * sizeof(ImageEntry));
  return body;
}

std::vector<ImageClaim> image_claims(const std::vector<Image>& images) {
  std::vector<ImageClaim> claims;
  for (const Image& image : images)
    claims.push_back({image.backend, image.kind, image.arch, image.toolkit,
                      to_hex(sha256(std::string_view(image.bytes)))});
  return claims;
}

}  // namespace opdock::pack

// SPDX-License-Identifier: Apache-2.0
#include "pack/packer.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "arch/choose.h"
#include "base/files.h"
#include "base/sentence.h"
#include "base/sha256.h"
#include "facts/nvrtc_search.h"
#include "opdock/plugin.h"
#include "pack/emit.h"
#include "pack/formulas.h"
#include "pack/images.h"
#include "pack/outputs.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;

// A build's sources have the same limit.
constexpr size_t kMaxFilesOfIncludes = 10000;

constexpr char kNvrtcPackages[] =
    "the Python package nvidia-cuda-nvrtc-cu12 (CUDA 12.9: Maxwell to Blackwell) or "
    "nvidia-cuda-nvrtc (CUDA 13), or a CUDA toolkit with CUDA_HOME set";

class Packer {
 public:
  explicit Packer(const PackOptions& options) : options_(options) {}

  int run() {
    std::optional<Manifest> manifest = read_declaration(options_.toml);
    if (!manifest) return 1;
    manifest_ = std::move(*manifest);
    std::vector<std::string> errors;
    depends_.push_back(manifest_.path);
    if ((manifest_.device || manifest_.has_gpu_formulas()) && !make_device(&errors))
      return report(errors);
    return write();
  }

 private:
  bool make_device(std::vector<std::string>* errors) {
    ImageRequest request;
    request.is_optimized = !options_.no_optimization;
    // The source that is compiled: the plugin's own [device], if it has one, and its formulas.
    Manifest compiled = manifest_;
    request.manifest = &compiled;
    const bool has_own = manifest_.device.has_value();
    if (has_own)
      request.sources = read_device_sources(manifest_, options_.include, &depends_, errors);
    // A misspelt list is an error even if there is nothing to compile with.
    CudaArchInputs wanted;
    wanted.sources = {{"--cuda-archs", options_.cuda_archs}};
    wanted.least = manifest_.build.least_cuda;
    Reason reason{};
    // The machine that packs decides only for these words: a package must not depend on its GPU.
    const std::optional<CudaList> list =
        parse_cuda_list(options_.cuda_archs, "--cuda-archs", &reason);
    if (list && (list->native || list->automatic)) wanted.gpus = probe_machine().gpus;
    const std::optional<CudaArchChoice> choice = choose_cuda_archs(wanted, &reason);
    if (!choice && reason.code != Code::kBuildArch)
      errors->push_back(reason.code == Code::kArchListInvalid
                            ? to_text(reason)
                            : "opdock-pack: error: " + to_line(reason));
    if (!errors->empty()) return false;

    std::vector<std::string> searched;
    std::vector<std::string> problems;
    // Formulas need no image, so that they have none where nobody has asked for an architecture.
    const bool with_formulas = !options_.no_formula_kernels && manifest_.has_gpu_formulas() && list;
    const bool with_cuda = !options_.no_cuda && manifest_.is_for(Backend::kCuda) &&
                           !(choice && choice->nothing) && (has_own || with_formulas);
    if (with_cuda) {
      request.compilers =
          open_nvrtcs(nvrtc_candidates(options_.nvrtc_search, &searched), &problems);
      for (const Nvrtc* compiler : request.compilers)
        if (compiler->path().find('/') != std::string::npos) depends_.push_back(compiler->path());
    }
    if (!request.compilers.empty()) {
      if (!choose_archs(wanted, request.compilers, &request.archs, errors)) return false;
    }
    if (!find_hip_compilers(options_.hip, &request, &depends_, errors)) return false;
    const bool makes_cuda = with_formulas && !request.compilers.empty();
    const bool makes_hip = !options_.no_formula_kernels && !request.hiprtcs.empty();
    if (manifest_.has_gpu_formulas() && (makes_cuda || makes_hip)) {
      if (!has_own)
        request.sources = read_device_sources(manifest_, options_.include, &depends_, errors);
      if (!errors->empty() || !add_formulas(&compiled, &request.sources, errors)) return false;
    }
    if (compiled.device) make_images_of(&request, errors);
    if (!errors->empty()) return false;
    if (!with_cuda) return true;
    return !request.compilers.empty() || report_missing_compiler(searched, problems, errors);
  }

  void make_images_of(ImageRequest* request, std::vector<std::string>* errors) {
    std::optional<ImageCache> cache;
    if (!options_.cache.empty()) request->cache = &cache.emplace(options_.cache);
    images_ = make_images(*request, errors);
    keep_sources(*request, images_);
    sources_ = std::move(request->sources);
    for (const Nvrtc* compiler : request->compilers)
      compilers_.push_back("nvrtc " + compiler->version().text());
    for (const HiprtcFile& file : request->hiprtcs)
      compilers_.push_back("hiprtc " + file.version.text());
  }

  // Refuses architectures that no compiler knows, before anything is compiled.
  bool choose_archs(CudaArchInputs wanted, const std::vector<const Nvrtc*>& compilers,
                    std::vector<CudaTarget>* archs, std::vector<std::string>* errors) {
    for (const Nvrtc* compiler : compilers)
      wanted.compilers.push_back(archs_of_nvrtc(compiler->version(), compiler->archs()));
    wanted.gpu_numbers = gpu_numbers_of(options_.gpu_archs);
    Reason reason{};
    const std::optional<CudaArchChoice> choice = choose_cuda_archs(wanted, &reason);
    if (!choice) {
      errors->push_back(fmt::format("opdock-pack: error: {}: {} Compilers are in {}.",
                                    manifest_.name, to_text(reason), kNvrtcPackages));
      return false;
    }
    *archs = choice->targets;
    return true;
  }

  // Reports one notice, or one error if device code is required.
  bool report_missing_compiler(const std::vector<std::string>& searched,
                               const std::vector<std::string>& problems,
                               std::vector<std::string>* errors) {
    std::string text =
        fmt::format("{}: found no NVRTC, so no images for CUDA are packed; wanted {}.",
                    manifest_.name, kNvrtcPackages);
    for (const std::string& problem : problems) text += "\n  " + problem;
    // If a package is installed later, one of these folders changes, and so this step is repeated.
    for (const std::string& folder : searched) depends_.push_back(folder);
    if (options_.require_cuda) {
      errors->push_back(fmt::format("opdock-pack: error: {}", text));
      return false;
    }
    std::fprintf(stderr, "opdock-pack: notice: %s\n", text.c_str());
    return true;
  }

  // Returns the files that the host part is made from, according to plugin.toml.
  std::vector<std::string> host_files() const {
    std::vector<std::string> files = manifest_.sources;
    for (std::string& name :
         files_of_includes(manifest_.build, manifest_.folder(), kMaxFilesOfIncludes))
      if (!name.ends_with('/')) files.push_back(std::move(name));
    return files;
  }

  Digest build_hash() const {
    FieldHasher hasher;
    hasher.add("opdock-pack").add(OPDOCK_VERSION);
    hasher.add(fmt::format("{}.{}", OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR));
    hasher.add(manifest_.text);
    for (const std::string& source : host_files())
      hasher.add(source).add(read_file(manifest_.folder() / source).value_or(""));
    for (const SourceText& source : sources_) hasher.add(source.name).add(source.text);
    hasher.add(fmt::format("{} images", images_.size()));
    for (const Image& image : images_) hasher.add(image.arch).add(image.bytes);
    for (const std::string& compiler : compilers_) hasher.add(compiler);
    hasher.add(options_.toolchain).add(options_.cpu_arch);
    hasher.add(fmt::format("{}", options_.cpu_level));
    return hasher.finish();
  }

  Note make_note() const {
    Note note;
    note.head.build_hash = build_hash();
    note.name = manifest_.name;
    note.version = *Version::parse(manifest_.version);
    note.license = manifest_.license;
    note.devices = manifest_.backends();
    for (const OpDecl& op : manifest_.ops) note.ops.push_back(to_claim(op));
    note.images = image_claims(images_);
    note.libraries = manifest_.libraries;
    note.least_cuda = manifest_.build.least_cuda;
    note.cpu_arch = options_.cpu_arch;
    note.cpu_level = options_.cpu_level;
    note.toolchain = options_.toolchain;
    return note;
  }

  int write() {
    const fs::path folder = options_.out_dir;
    const std::string prefix = options_.prefix;
    const std::string images_name = prefix + "images.bin";
    const std::string table = images_.empty() ? "" : image_table(images_);
    const Note note = make_note();
    const size_t note_bytes = sizeof(NoteHead) + note_json(note).size();
    if (note_bytes > kMaxNoteBytes) {
      std::fprintf(stderr, "%s: found a note of %zu bytes, wanted at most %u; split the plugin\n",
                   manifest_.path.c_str(), note_bytes, kMaxNoteBytes);
      return 1;
    }
    if (!write_file(folder / (prefix + "entry.c"), entry_source(manifest_)) ||
        !write_file(folder / images_name, table) ||
        !write_file(folder / (prefix + "note.S"),
                    note_source(note, table.empty() ? "" : images_name)))
      return 1;
    for (const std::string& source : host_files()) depends_.push_back(manifest_.folder() / source);
    return write_depfile(options_.depfile, folder / (prefix + "entry.c"), depends_) ? 0 : 1;
  }

  const PackOptions& options_;
  Manifest manifest_;
  std::vector<SourceText> sources_;
  std::vector<Image> images_;
  std::vector<std::string> compilers_;
  std::vector<fs::path> depends_;
};

}  // namespace

int run_packer(const PackOptions& options) {
  return Packer(options).run();
}

}  // namespace opdock::pack

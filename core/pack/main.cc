// opdock-pack: from plugin.toml to the files that make a shared object a plugin.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "arch/choose.h"
#include "base/sha256.h"
#include "facts/nvrtc_search.h"
#include "opdock/plugin.h"
#include "pack/arch_flags.h"
#include "pack/emit.h"
#include "pack/hip_images.h"
#include "pack/images.h"
#include "pack/ops_header.h"

namespace opdock::pack {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string toml;
  std::string out_dir = ".";
  std::string prefix;
  std::string ops_header;  // instead of all else
  std::string depfile;
  std::string cuda_archs;  // empty: the default of the compilers at hand
  std::string gpu_archs;
  std::string include;
  std::vector<std::string> nvrtc_search;
  std::string toolchain;
#if defined(__x86_64__)
  std::string cpu_arch = "x86_64";
  int cpu_level = 1;
#else
  std::string cpu_arch = "aarch64";
  int cpu_level = 0;
#endif
  bool no_cuda = false;
  bool require_cuda = false;
  HipOptions hip;
};

constexpr char kPackages[] =
    "the Python package nvidia-cuda-nvrtc-cu12 (CUDA 12.9: Maxwell to Blackwell) or "
    "nvidia-cuda-nvrtc (CUDA 13), or a CUDA toolkit with CUDA_HOME set";

int report(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
  return 1;
}

// A line each as compilers write them, "file:line:column: error: …", for editors.
int report(const std::vector<Reason>& mistakes, const std::string& file) {
  for (const Reason& mistake : mistakes) {
    const size_t place = mistake.found.find(": ", file.size());
    std::fprintf(stderr, "%s: error%s, wanted %s\n", mistake.found.substr(0, place).c_str(),
                 mistake.found.substr(place).c_str(), mistake.wanted.c_str());
  }
  return 1;
}

// Leaves an unchanged file alone, so that nothing that depends on it is made again.
bool write_file(const fs::path& path, const std::string& bytes) {
  if (read_file(path) == bytes) return true;
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
  stream.close();
  if (!stream) std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return bool(stream);
}

// make's syntax: a space in a name is escaped.
std::string escaped(const fs::path& path) {
  std::string out;
  for (char c : path.string()) {
    if (c == ' ' || c == '#') out += '\\';
    out += c;
  }
  return out;
}

class Packer {
 public:
  explicit Packer(const Options& options) : options_(options) {}

  int run() {
    std::vector<Reason> mistakes;
    std::optional<Manifest> manifest = read_manifest(options_.toml, &mistakes);
    if (!manifest) return report(mistakes, options_.toml);
    manifest_ = std::move(*manifest);
    if (!options_.ops_header.empty())
      return write_file(options_.ops_header, ops_header(manifest_)) ? 0 : 1;
    std::vector<std::string> errors;
    depends_.push_back(manifest_.path);
    if (manifest_.device && !make_device(&errors)) return report(errors);
    return write();
  }

 private:
  bool make_device(std::vector<std::string>* errors) {
    ImageRequest request;
    request.manifest = &manifest_;
    request.sources = read_device_sources(manifest_, options_.include, &depends_, errors);
    // A misspelt list is an error even where there is nothing to compile with.
    CudaArchInputs wanted;
    wanted.sources = {{"--cuda-archs", options_.cuda_archs}};
    Reason reason{};
    if (const std::optional<CudaArchChoice> choice = choose_cuda_archs(wanted, &reason);
        !choice && reason.code == Code::kArchListInvalid)
      errors->push_back(to_text(reason));
    if (!errors->empty()) return false;

    std::vector<std::string> searched;
    std::vector<std::string> problems;
    const bool with_cuda = !options_.no_cuda && is_for(manifest_, Backend::kCuda);
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
    images_ = make_images(request, errors);
    keep_sources(request, images_);
    sources_ = std::move(request.sources);
    for (const Nvrtc* compiler : request.compilers)
      compilers_.push_back("nvrtc " + compiler->version().text());
    for (const HiprtcFile& file : request.hiprtcs)
      compilers_.push_back("hiprtc " + file.version.text());
    if (!errors->empty()) return false;
    if (!with_cuda) return true;
    return !request.compilers.empty() || judge_missing_compiler(searched, problems, errors);
  }

  // Refuses what no compiler knows before anything is compiled.
  bool choose_archs(CudaArchInputs wanted, const std::vector<const Nvrtc*>& compilers,
                    std::vector<CudaTarget>* archs, std::vector<std::string>* errors) {
    for (const Nvrtc* compiler : compilers)
      wanted.compilers.push_back(archs_of_nvrtc(compiler->version(), compiler->archs()));
    wanted.gpu_numbers = gpu_numbers_of(options_.gpu_archs);
    // The machine that packs decides only if asked to: a package must not depend on its GPU.
    Reason reason{};
    const std::optional<CudaList> list =
        parse_cuda_list(options_.cuda_archs, "--cuda-archs", &reason);
    if (list && list->native) wanted.gpus = probe_machine().gpus;
    const std::optional<CudaArchChoice> choice = choose_cuda_archs(wanted, &reason);
    if (!choice) {
      errors->push_back(fmt::format("opdock-pack: error: {}: {} Compilers are in {}.",
                                    manifest_.name, to_text(reason), kPackages));
      return false;
    }
    *archs = choice->targets;
    return true;
  }

  // One notice, or one error if device code is required.
  bool judge_missing_compiler(const std::vector<std::string>& searched,
                              const std::vector<std::string>& problems,
                              std::vector<std::string>* errors) {
    std::string text =
        fmt::format("{}: found no NVRTC, so no images for CUDA are packed; wanted {}.",
                    manifest_.name, kPackages);
    for (const std::string& problem : problems) text += "\n  " + problem;
    // A package that is installed later changes one of these folders and so repeats this step.
    for (const std::string& folder : searched) depends_.push_back(folder);
    if (options_.require_cuda) {
      errors->push_back(fmt::format("opdock-pack: error: {}", text));
      return false;
    }
    std::fprintf(stderr, "opdock-pack: notice: %s\n", text.c_str());
    return true;
  }

  Digest build_hash() const {
    FieldHasher hasher;
    hasher.add("opdock-pack").add(OPDOCK_VERSION);
    hasher.add(fmt::format("{}.{}", OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR));
    hasher.add(manifest_.text);
    for (const std::string& source : manifest_.sources)
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
    for (Backend backend : {Backend::kCpu, Backend::kCuda, Backend::kRocm}) {
      bool used = false;
      for (const OpDecl& op : manifest_.ops)
        for (const std::string& device : op.devices) used |= device == to_text(backend);
      if (used) note.devices.push_back(backend);
    }
    for (const OpDecl& op : manifest_.ops) note.ops.push_back(to_claim(op));
    note.images = image_claims(images_);
    note.libraries = manifest_.libraries;
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
                    note_source(note, table.empty() ? "" : images_name, table.size())))
      return 1;
    if (options_.depfile.empty()) return 0;
    for (const std::string& source : manifest_.sources)
      depends_.push_back(manifest_.folder() / source);
    std::string text = escaped(folder / (prefix + "entry.c")) + ":";
    for (const fs::path& path : depends_) text += " \\\n  " + escaped(path);
    return write_file(options_.depfile, text + "\n") ? 0 : 1;
  }

  const Options& options_;
  Manifest manifest_;
  std::vector<SourceText> sources_;
  std::vector<Image> images_;
  std::vector<std::string> compilers_;
  std::vector<fs::path> depends_;
};

}  // namespace

}  // namespace opdock::pack

int main(int argc, char** argv) {
  opdock::pack::Options options;
  CLI::App app("Makes the descriptor, the note and the device images of an Opdock plugin.",
               "opdock-pack");
  opdock::pack::ArchFlags flags;
  auto* toml = app.add_option("--toml", options.toml, "the plugin's plugin.toml");
  auto* arch_flags =
      app.add_option("--arch-flags", flags.compiler,
                     "instead of packing: write the architectures as this compiler's arguments")
          ->check(CLI::IsMember({"nvcc", "hipcc"}))
          ->excludes(toml);
  app.add_option("--compiler", flags.program, "with --arch-flags nvcc: its path, to ask it")
      ->needs(arch_flags);
  app.add_option("--flags-file", flags.out, "with --arch-flags: where to, instead of stdout")
      ->needs(arch_flags);
  bool known_archs = false;
  app.add_flag("--known-archs", known_archs,
               "instead of packing: list each NVRTC here with the architectures that it knows")
      ->excludes(toml)
      ->excludes(arch_flags);
  app.add_option("--out-dir", options.out_dir, "where entry.c, note.S and images.bin go");
  app.add_option("--prefix", options.prefix, "put before the names of these files");
  app.add_option(
         "--ops-header", options.ops_header,
         "instead of packing: check plugin.toml, and write the header that OPDOCK_OP checks\n"
         "functions by, with the kernels: compile with -DOPDOCK_OPS_H='\"FILE\"'")
      ->needs(toml);
  app.add_option("--depfile", options.depfile, "what the files were made from, for make and ninja");
  app.add_option("--cuda-archs", options.cuda_archs,
                 "CUDA architectures, as in TORCH_CUDA_ARCH_LIST: \"7.5;8.0;9.0a;12.0+PTX\",\n"
                 "native, all or all-major; none: the default of the compilers at hand");
  app.add_option("--gpu-archs", options.gpu_archs,
                 "those of --cuda-archs that stand for the GPUs here: where a compiler is older\n"
                 "than one of them, it makes PTX of the newest architecture that it knows");
  app.add_option(
      "--hip-archs", flags.hip_archs,
      "AMD architectures, as in PYTORCH_ROCM_ARCH: \"gfx90a;gfx1030\";\nnone: no code objects");
  app.add_option("--include", options.include, "the folder that holds opdock/device.cuh");
  app.add_option("--nvrtc-search", options.nvrtc_search,
                 "folders that hold libnvrtc, or are Python site-packages folders; searched first");
  app.add_option("--toolchain", options.toolchain, "the host compiler, for people");
  app.add_option("--cpu-arch", options.cpu_arch, "x86_64 or aarch64; default: this machine's");
  app.add_option("--cpu-level", options.cpu_level,
                 "the x86-64 level the host part was compiled for: 1 to 4; 0 on other processors")
      ->check(CLI::Range(0, 4));
  const auto add_pair = [&app](const char* name, const char* what, bool* none, bool* require) {
    auto* off =
        app.add_flag(fmt::format("--no-{}", name), *none, fmt::format("compile no {}", what));
    app.add_flag(fmt::format("--require-{}", name), *require,
                 "fail where these cannot be made for want of a compiler")
        ->excludes(off);
  };
  add_pair("cuda", "CUDA images", &options.no_cuda, &options.require_cuda);
  add_pair("hip", "HIP code objects", &options.hip.none, &options.hip.require);
  bool no_device = false, require_device = false;
  add_pair("device", "images of either kind: pack the source alone", &no_device, &require_device);
  app.add_option("--compile-program", options.hip.worker,
                 "opdock-compile, in which hipRTC runs; default: the installed one");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  if (known_archs) return opdock::pack::write_known_archs(options.nvrtc_search);
  if (!flags.compiler.empty()) {
    flags.cuda_archs = options.cuda_archs;
    flags.gpu_archs = options.gpu_archs;
    return opdock::pack::write_arch_flags(flags);
  }
  if (options.toml.empty()) {
    std::fprintf(stderr,
                 "opdock-pack: found none of --toml, --arch-flags and --known-archs, wanted one\n");
    return 2;
  }
  options.hip.archs = flags.hip_archs;
  options.no_cuda |= no_device;
  options.hip.none |= no_device;
  options.require_cuda |= require_device;
  options.hip.require |= require_device;
  if (!opdock::pack::check_hip_archs(flags.hip_archs)) return 1;
  return opdock::pack::Packer(options).run();
}

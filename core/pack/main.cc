// opdock-pack: makes from plugin.toml the files that make a shared object a plugin, and its
// compilers' arguments.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "pack/arch_flags.h"
#include "pack/ops_header.h"
#include "pack/outputs.h"
#include "pack/packer.h"
#include "pack/prepare.h"

namespace opdock::pack {
namespace {

struct Command {
  PackOptions pack;
  PrepareOptions prepare;
  // Modes other than packing. If several are given, the first of these is run.
  bool known_archs = false;
  std::string folder_of_plugins;
  std::string source, output, arguments;  // of --compile
  bool is_prepare = false;
  std::string ops_header;
  bool no_device = false, require_device = false;
};

void add_modes(CLI::App* app, Command* command) {
  auto* toml = app->add_option("--toml", command->pack.toml, "the plugin's plugin.toml");
  app->add_flag("--known-archs", command->known_archs,
                "instead of packing: list each NVRTC here with the architectures that it knows")
      ->excludes(toml);
  app->add_option("--plugins-in", command->folder_of_plugins,
                  "instead of packing: list the folders in this one that are plugins'")
      ->excludes(toml);
  auto* header = app->add_option(
      "--ops-header", command->ops_header,
      "instead of packing: check plugin.toml, and write the header that OPDOCK_OP checks\n"
      "functions by, with the kernels: compile with -DOPDOCK_OPS_H='\"FILE\"'");
  header->needs(toml);
  auto* prepare =
      app->add_flag("--prepare", command->is_prepare,
                    "instead of packing: check plugin.toml, and write that header as ops.h, and\n"
                    "the arguments of compilers and linker: needs.h, c.args, cxx.args, nvcc.args,\n"
                    "hipcc.args, link.args")
          ->needs(toml)
          ->excludes(header);
  app->add_option("--compiler-id", command->prepare.compiler_id,
                  "with --prepare: whose flags the host part gets, gcc or clang")
      ->needs(prepare);
  app->add_option("--host-compiler", command->prepare.host_compiler,
                  "with --prepare: the C++ compiler, for nvcc")
      ->needs(prepare);
  app->add_option("--nvcc", command->prepare.nvcc, "with --prepare: the program, for .cu files")
      ->needs(prepare);
  app->add_option("--hipcc", command->prepare.hipcc, "with --prepare: the program, for .hip files")
      ->needs(prepare);
  app->add_option("--headers", command->prepare.headers,
                  "with --prepare: the folder that holds opdock/plugin.h")
      ->needs(prepare);
  auto* compile = app->add_option("--compile", command->source,
                                  "instead of packing: compile this .cu or .hip file")
                      ->excludes(toml);
  for (const auto& [name, place, what] :
       {std::tuple{"--arguments", &command->arguments, "with --compile: nvcc.args or hipcc.args"},
        {"--output", &command->output, "with --compile: the object"}}) {
    auto* option = app->add_option(name, *place, what)->needs(compile);
    compile->needs(option);
  }
}

void add_packing(CLI::App* app, PackOptions* pack) {
  app->add_option("--out-dir", pack->out_dir, "where entry.c, note.S and images.bin go");
  app->add_option("--prefix", pack->prefix, "put before the names of these files");
  app->add_option("--depfile", pack->depfile, "what the files were made from, for make and ninja");
  app->add_option("--cuda-archs", pack->cuda_archs,
                  "CUDA architectures, as in TORCH_CUDA_ARCH_LIST: \"7.5;8.0;9.0a;12.0+PTX\",\n"
                  "native, all or all-major; none: the default of the compilers here");
  app->add_option("--gpu-archs", pack->gpu_archs,
                  "those of --cuda-archs that stand for the GPUs here: where a compiler is older\n"
                  "than one of them, it makes PTX of the newest architecture that it knows");
  app->add_option(
      "--hip-archs", pack->hip.archs,
      "AMD architectures, as in PYTORCH_ROCM_ARCH: \"gfx90a;gfx1030\";\nnone: no code objects");
  app->add_option("--include", pack->include, "the folder that holds opdock/device.cuh");
  app->add_option(
      "--nvrtc-search", pack->nvrtc_search,
      "folders that hold libnvrtc, or are Python site-packages folders; searched first");
  app->add_option("--cache", pack->cache,
                  "a folder that keeps images, from which what was compiled before is taken");
  app->add_option("--toolchain", pack->toolchain, "the host compiler, for people");
  app->add_option("--cpu-arch", pack->cpu_arch, "x86_64 or aarch64; default: this machine's");
  app->add_option("--cpu-level", pack->cpu_level,
                  "the x86-64 level the host part was compiled for: 1 to 4; 0 on other processors")
      ->check(CLI::Range(0, 4));
  app->add_option("--compile-program", pack->hip.worker,
                  "opdock-compile, in which hipRTC runs; default: the installed one");
}

void add_kinds(CLI::App* app, Command* command) {
  const auto add = [app](const char* name, const char* what, bool* none, bool* require) {
    auto* off =
        app->add_flag(fmt::format("--no-{}", name), *none, fmt::format("compile no {}", what));
    app->add_flag(fmt::format("--require-{}", name), *require,
                  "fail where these cannot be made for want of a compiler")
        ->excludes(off);
  };
  PackOptions& pack = command->pack;
  add("cuda", "CUDA images", &pack.no_cuda, &pack.require_cuda);
  add("hip", "HIP code objects", &pack.hip.none, &pack.hip.require);
  app->add_flag("--no-formula-kernels", pack.no_formula_kernels,
                "compile no kernels of formulas ahead; a call that needs one compiles it");
  app->add_flag("--no-optimization", pack.no_optimization,
                "compile images fast, for tests that only read them; on a GPU they are slow");
  add("device", "images of either kind: pack the source alone", &command->no_device,
      &command->require_device);
}

int run_prepare(Command* command) {
  PrepareOptions& options = command->prepare;
  const PackOptions& pack = command->pack;
  options.toml = pack.toml;
  options.out_dir = pack.out_dir;
  options.prefix = pack.prefix;
  options.depfile = pack.depfile;
  options.device_headers = pack.include;
  options.archs = {pack.cuda_archs, pack.gpu_archs, pack.hip.archs};
  return prepare(options);
}

int run(Command* command) {
  PackOptions& pack = command->pack;
  if (command->known_archs) return write_known_archs(pack.nvrtc_search);
  if (!command->folder_of_plugins.empty()) return list_plugins(command->folder_of_plugins);
  if (!command->source.empty())
    return run_compiler(command->arguments, command->source, command->output, pack.depfile);
  if (pack.toml.empty()) {
    std::fprintf(stderr,
                 "opdock-pack: found none of --toml, --compile, --known-archs and --plugins-in, "
                 "wanted one\n");
    return 2;
  }
  if (command->is_prepare) return run_prepare(command);
  if (!command->ops_header.empty()) {
    const std::optional<Manifest> manifest = read_declaration(pack.toml);
    return manifest && write_file(command->ops_header, ops_header(*manifest)) ? 0 : 1;
  }
  pack.no_cuda |= command->no_device;
  pack.hip.none |= command->no_device;
  pack.require_cuda |= command->require_device;
  pack.hip.require |= command->require_device;
  return check_hip_archs(pack.hip.archs) ? run_packer(pack) : 1;
}

}  // namespace
}  // namespace opdock::pack

int main(int argc, char** argv) {
  opdock::pack::Command command;
  CLI::App app("Makes the descriptor, the note and the device images of an Opdock plugin.",
               "opdock-pack");
  opdock::pack::add_modes(&app, &command);
  opdock::pack::add_packing(&app, &command.pack);
  opdock::pack::add_kinds(&app, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  return opdock::pack::run(&command);
}

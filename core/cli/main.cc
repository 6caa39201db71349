// The opdock command.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "commands.h"
#include "terminal.h"

namespace {

using opdock::cli::Failure;

constexpr const char* kFooter =
    "Exit status: 0 good, 1 what was asked about cannot be used, 2 bad usage.\n"
    "Plugins are searched in $OPDOCK_PLUGIN_PATH if set, else in the user's, the system's and\n"
    "Opdock's own folders; `opdock doctor` shows which.";

constexpr const char* kBuildFooter =
    "Which architectures count, most important first: --archs and --hip-archs;\n"
    "TORCH_CUDA_ARCH_LIST and PYTORCH_ROCM_ARCH; cuda-archs and hip-archs in the configuration;\n"
    "the GPUs that are visible; a default of the compiler's (none for AMD). With --jit only "
    "--archs,\n"
    "which then names AMD's processors too, and the visible GPUs.\n"
    "Exit status: 0 all there, 1 something could not be built, 2 bad usage.";

struct Arguments {
  bool json = false;
  bool all = false;
  bool codes = false;
  bool removes = false;
  bool lists = false;
  std::string plugin_path;
  std::string subject;
  opdock::cli::RunOptions run;
  opdock::cli::BuildCommand build;
  opdock::cli::NewCommand fresh;
  opdock::cli::AuthorCommand author;
};

void define(CLI::App* app, Arguments* args) {
  app->footer(kFooter);
  app->set_version_flag("--version", opdock_version());
  app->require_subcommand(1);
  const auto add = [&](const char* name, const char* text) {
    CLI::App* command = app->add_subcommand(name, text);
    command->add_flag("--json", args->json, "Print JSON, for programs");
    return command;
  };
  const auto add_path = [&](CLI::App* command) {
    command->add_option("--plugin-path", args->plugin_path,
                        "Folders or files to use instead of the default places, colon-separated");
  };
  CLI::App* list = add("list", "List every plugin found, with its verdict");
  list->add_flag("--all", args->all, "Show the notices and devices' reasons of usable plugins too");
  add_path(list);
  CLI::App* inspect = add("inspect", "Show what a shared object is, without running any of it");
  inspect->add_option("FILE", args->subject, "Any ELF shared object")->required();
  CLI::App* explain = add("explain", "Say which plugin serves an op, and why no other does");
  explain->add_option("NAME", args->subject, "An op, a plugin, or PLUGIN/OP");
  explain->add_flag("--codes", args->codes, "List every reason code instead");
  add_path(explain);
  CLI::App* doctor = add("doctor", "Say what this machine has, and what is missing for what");
  add_path(doctor);
  CLI::App* run = add("run", "Run an op on small inputs and print the result");
  run->add_option("OP", args->run.op, "An op, or PLUGIN/OP")->required();
  run->add_option("--arg", args->run.arguments,
                  "NAME=VALUE: a number, text, True, None, [1,2,3], or randn(4,8), zeros(…),\n"
                  "ones(…), arange(…); tensors may end in :DTYPE")
      ->take_all();
  run->add_option("--device", args->run.device, "cpu, cuda:0 or rocm:0")->capture_default_str();
  run->add_option("--seed", args->run.seed, "For randn")->capture_default_str();
  add_path(run);
  CLI::App* build = add("build", "Build source plugins into the cache, ahead of time");
  build->footer(kBuildFooter);
  build->add_option("PATH", args->build.path, "A folder with a plugin.toml");
  build->add_flag("--all", args->build.all, "Instead of PATH: every source plugin that is found");
  build->add_flag("--jit", args->build.jit,
                  "Instead of building: compile the device source that binary plugins carry, as\n"
                  "their first use on such a GPU would, --jobs at a time");
  add_path(build);
  build->add_option("--archs", args->build.cuda_archs,
                    "CUDA architectures, as in TORCH_CUDA_ARCH_LIST: \"8.0;9.0a;10.0+PTX\",\n"
                    "native, all or all-major");
  build->add_option("--hip-archs", args->build.hip_archs,
                    "AMD architectures, as in PYTORCH_ROCM_ARCH: \"gfx90a;gfx1030\"");
  build->add_flag("--debug", args->build.debug, "Without optimisation, with debug information");
  build->add_flag("--retry", args->build.retry, "Even if these inputs failed to build before");
  build->add_option("--jobs", args->build.jobs,
                    "Compilers at once; by default by cores and memory");
  build
      ->add_option("--timeout", args->build.timeout,
                   "Seconds for each plugin; by default half an hour")
      ->check(CLI::PositiveNumber);
  CLI::App* trust = add("trust", "Allow plugins from a folder that others could have written");
  CLI::Option* dir = trust->add_option("DIR", args->subject, "The folder that holds the plugins");
  trust->add_flag("--remove", args->removes, "Take the consent for DIR back")->needs(dir);
  trust->add_flag("--list", args->lists, "List the folders that were trusted instead")
      ->excludes(dir);
  CLI::App* fresh = add("new", "Write a plugin's folder that builds and passes its own test");
  fresh->add_option("NAME", args->fresh.name, "Of the plugin and its op")->required();
  fresh
      ->add_option("--kind", args->fresh.kind,
                   "cpu; device: also kernels that NVRTC compiles; nvcc: also a .cu file")
      ->check(CLI::IsMember({"cpu", "device", "nvcc"}))
      ->capture_default_str();
  fresh->add_option("--in", args->fresh.folder, "Where the folder goes; default: here");
  const auto add_author = [&](const char* name, const char* text, const char* others) {
    CLI::App* command = app->add_subcommand(name, text);
    command->add_option("PATH", args->author.path, "A folder with a plugin.toml")->required();
    command->add_option("ARGS", args->author.arguments, others);
    return command;
  };
  CLI::App* test = add_author("test", "Build a source plugin and run its test_*.py by pytest",
                              "Further arguments of pytest, after --");
  CLI::Option* soft =
      test->add_option("--device", args->author.device,
                       "soft: on software GPUs, CUDA's and AMD's, that execute the kernels here")
          ->check(CLI::IsMember({"soft"}));
  test->add_option("--arch", args->author.arch, "Of the one software GPU: sm_90, gfx1030, …")
      ->needs(soft);
  test->add_option("--warp", args->author.warp, "Only software GPUs with warps of 32 or 64 threads")
      ->check(CLI::IsMember({32, 64}))
      ->needs(soft);
  test->add_option("--seed", args->author.seed, "Of the order in which blocks and threads run")
      ->needs(soft);
  test->add_flag("--counters", args->author.counters,
                 "Print what each kernel did: sectors, bank conflicts, barriers")
      ->needs(soft);
  add_author("bench", "Build a source plugin and run its bench_*.py",
             "Arguments of the benches, after --");
  CLI::App* cache = app->add_subcommand("cache", "Show and tidy what was compiled and built");
  cache->require_subcommand(1);
  const auto add_action = [&](const char* name, const char* text) {
    CLI::App* action = cache->add_subcommand(name, text);
    action->add_flag("--json", args->json, "Print JSON, for programs");
    return action;
  };
  add_action("ls", "List what is in it");
  add_action("gc",
             "Remove the least recently used beyond $OPDOCK_CACHE_MAX_BYTES, and what dead\n"
             "processes left; never what is in use");
  add_action("clear", "Remove everything that is not in use");
  add_action("verify", "Check every byte, and set aside what is damaged");
  add_action("export", "Write everything into one file, for another machine of the same kind")
      ->add_option("FILE", args->subject, "A tar file to write")
      ->required();
  add_action("import", "Take over what export wrote")
      ->add_option("FILE", args->subject, "A tar file that export wrote")
      ->required();
}

// Complains unless the options of `build` go together.
bool is_one_thing(const opdock::cli::BuildCommand& build) {
  std::string found;
  const auto add = [&](bool is_given, const std::string& name) {
    if (is_given) found += (found.empty() ? "" : " and ") + name;
  };
  add(!build.path.empty(), "PATH (\"" + build.path + "\")");
  add(build.all, "--all");
  add(build.jit, "--jit");
  std::string wanted = "one of PATH, --all and --jit";
  bool good = (!build.path.empty()) + build.all + build.jit == 1;
  if (good && build.jit && (build.debug || build.retry || build.timeout > 0)) {
    add(build.debug, "--debug");
    add(build.retry, "--retry");
    add(build.timeout > 0, "--timeout");
    wanted = "none of --debug, --retry and --timeout with --jit";
    good = false;
  }
  if (found.empty()) found = "nothing to build";
  if (!good) {
    opdock::cli::complain("build: found " + found + ", wanted " + wanted +
                          "; see `opdock build --help`");
  }
  return good;
}

int dispatch(const CLI::App& app, const Arguments& args) {
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "list") return opdock::cli::list_command(args.plugin_path, args.json, args.all);
  if (command == "inspect") return opdock::cli::inspect_command(args.subject, args.json);
  if (command == "doctor") return opdock::cli::doctor_command(args.plugin_path, args.json);
  if (command == "build") {
    opdock::cli::BuildCommand build = args.build;
    build.json = args.json;
    build.plugin_path = args.plugin_path;
    if (!is_one_thing(build)) return opdock::cli::kBadUsage;
    return opdock::cli::build_command(build);
  }
  if (command == "trust") {
    if (args.subject.empty() && !args.lists) {
      opdock::cli::complain(
          "trust: found no folder; give one, or --list for those that are trusted");
      return opdock::cli::kBadUsage;
    }
    const char* action = args.lists ? "list" : args.removes ? "remove" : "add";
    return opdock::cli::trust_command(action, args.subject, args.json);
  }
  if (command == "test" || command == "bench") {
    opdock::cli::AuthorCommand author = args.author;
    author.what = command;
    return opdock::cli::author_command(author);
  }
  if (command == "new") {
    opdock::cli::NewCommand fresh = args.fresh;
    fresh.json = args.json;
    return opdock::cli::new_command(fresh);
  }
  if (command == "cache") {
    const CLI::App* action = app.get_subcommands().front()->get_subcommands().front();
    return opdock::cli::cache_command(action->get_name(), args.subject, args.json);
  }
  if (command == "explain" && args.codes) return opdock::cli::codes_command(args.json);
  if (command == "explain") {
    if (args.subject.empty()) {
      opdock::cli::complain(
          "explain: found no name; give an op or a plugin, or --codes for all reason codes");
      return opdock::cli::kBadUsage;
    }
    return opdock::cli::explain_command(args.plugin_path, args.subject, args.json);
  }
  opdock::cli::RunOptions run = args.run;
  run.plugin_path = args.plugin_path;
  run.json = args.json;
  return opdock::cli::run_command(run);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Opdock finds, checks, loads and calls op plugins.", "opdock");
  Arguments args;
  define(&app, &args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::RequiredError& error) {
    if (!app.get_subcommands().empty()) {
      const std::string command = app.get_subcommands().front()->get_name();
      opdock::cli::complain(std::string(error.what()) + "; see `opdock " + command + " --help`");
      return opdock::cli::kBadUsage;
    }
    const bool has_word = argc > 1 && argv[1][0] != '-';
    opdock::cli::complain(
        has_word ? "found the command \"" + std::string(argv[1]) +
                       "\", wanted list, inspect, explain, doctor, run, build, trust, cache, "
                       "new, test or bench"
                 : "found no command; see `opdock --help`");
    return opdock::cli::kBadUsage;
  } catch (const CLI::ParseError& error) {
    opdock::cli::complain(std::string(error.what()) + "; see `opdock --help`");
    return opdock::cli::kBadUsage;
  }
  try {
    const int status = dispatch(app, args);
    return std::fflush(stdout) == 0 ? status : opdock::cli::kUnfit;
  } catch (const Failure& failure) {
    opdock::cli::complain(failure.text);
    const bool is_usage = failure.status == OPDOCK_INVALID_ARGUMENT ||
                          (failure.status == OPDOCK_NOT_FOUND && app.got_subcommand("inspect"));
    return is_usage ? opdock::cli::kBadUsage : opdock::cli::kUnfit;
  } catch (const std::exception& error) {
    opdock::cli::complain(error.what());
    return opdock::cli::kUnfit;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "subcommands.h"

#include <climits>
#include <cstdint>
#include <functional>

#include "inspect/machine_spec.h"
#include "value_checks.h"

namespace opdock::cli {
namespace {

constexpr const char* kFooter =
    "Exit status: 0 good; 1 what was asked about cannot be used; 2 the command line, a variable\n"
    "or a setting is invalid; 130 stopped by Ctrl-C.\n"
    "Plugins are searched in $OPDOCK_PLUGIN_PATH if set, else in the folders of the user, of\n"
    "Python packages, of the system and of Opdock; `opdock doctor` shows which.";

constexpr const char* kBuildFooter =
    "Which architectures count, most important first: --archs and --hip-archs;\n"
    "TORCH_CUDA_ARCH_LIST and PYTORCH_ROCM_ARCH; cuda-archs and hip-archs in the configuration;\n"
    "the GPUs that are visible; a default of the compiler's (none for AMD). With --jit only "
    "--archs,\n"
    "which then names AMD's processors too, and the visible GPUs.\n"
    "Exit status: 0 all there; 1 something could not be built; 2 and 130 as everywhere.";

constexpr const char* kBenchFooter =
    "With --tune and --forget PATH and ARGS are plugins: folders, or names of source plugins that "
    "are\nfound; none: all of these. What was kept is used by every process that starts later, "
    "with\n"
    "the same build of the plugin on the same kind of device.\n"
    "Exit status: 0 good; 1 something failed; 2 and 130 as everywhere.";

constexpr const char* kInspectFooter =
    "One shared object is shown in full, everything else as a table, the worst first. With any of\n"
    "--gpu to --cpu the machine is a described one: no GPU and no driver but those given, and the\n"
    "rest as it is here.\n"
    "Exit status: 0 all usable; 1 something is rejected, or it is undecided whether it is usable,\n"
    "or (--diff) there are differences; 2 and 130 as everywhere.";

// ---- values: each shows what it takes, and refuses the rest (value_checks.h)

using Check = std::function<void(const std::string& text)>;

CLI::Option* checked(CLI::Option* option, const std::string& shown, const Check& check) {
  return option->type_name(shown)->check([=](const std::string& text) {
    check(text);
    return std::string();
  });
}

CLI::Option* word(CLI::Option* option, const std::vector<std::string>& words) {
  std::string shown;
  for (const std::string& each : words) shown += (shown.empty() ? "" : "|") + each;
  return checked(option, shown,
                 [=](const std::string& text) { check_word(option->get_name(), words, text); });
}

CLI::Option* number(CLI::Option* option, uint64_t least, uint64_t most, const char* or_else) {
  return checked(option, "N", [=](const std::string& text) {
    check_number(option->get_name(), least, most, or_else, text);
  });
}

CLI::Option* existing(CLI::Option* option, const char* shown, const char* wanted) {
  return checked(option, shown,
                 [=](const std::string& text) { check_exists(option->get_name(), wanted, text); });
}

void add_plugin_path(CLI::App* command, Arguments* args) {
  CLI::Option* option =
      command->add_option("--plugin-path", args->plugin_path,
                          "Folders or files to use instead of the default places, colon-separated");
  checked(option, "PATHS", [=](const std::string& text) { check_paths(option->get_name(), text); });
}

// The help of a PATH argument that is a source plugin. main.cc looks up which folder a name means
// (plugin_names.h).
constexpr const char* kSourceText =
    "A folder with a plugin.toml, or the name of a source plugin that is found";

// ---- the subcommands

CLI::App* add(CLI::App* app, Arguments* args, const char* name, const char* text) {
  CLI::App* command = app->add_subcommand(name, text);
  command->add_flag("--json", args->json, "Print JSON, for programs");
  return command;
}

// Declares an option that describes part of a machine. An impossible value is refused before
// anything is inspected.
CLI::Option* part_of_machine(CLI::Option* option, const char* shown,
                             std::string MachineSpec::* member) {
  return checked(option, shown, [=](const std::string& text) {
    MachineSpec spec;
    if (member == nullptr) {
      spec.gpus = {text};
    } else {
      spec.*member = text;
    }
    const std::optional<SpecProblem> problem = check_spec(spec);
    const bool is_empty = text.empty();
    if (problem || is_empty) {
      throw Usage{is_empty ? "\"\"" : problem->found, is_empty ? "a value" : problem->wanted,
                  is_empty ? "" : problem->advice, option->get_name(), ""};
    }
  });
}

// Adds the options for the GPUs and drivers of another machine than this one.
void add_gpu_machine(CLI::App* command, std::vector<std::string>* gpus, std::string* driver,
                     std::string* cuda, std::string* rocm) {
  part_of_machine(command->add_option("--gpu", *gpus,
                                      "Judge for this GPU instead of those here; may be repeated"),
                  "ARCH", nullptr)
      ->allow_extra_args(false);
  CLI::Option* release = part_of_machine(
      command->add_option("--driver", *driver, "... with this release of NVIDIA's driver"),
      "RELEASE", &MachineSpec::driver);
  part_of_machine(
      command->add_option("--cuda", *cuda, "... or with a driver that supports this CUDA version"),
      "VERSION", &MachineSpec::cuda)
      ->excludes(release);
  part_of_machine(command->add_option("--rocm", *rocm, "... with this ROCm"), "VERSION",
                  &MachineSpec::rocm);
}

void declare_reports(CLI::App* app, Arguments* args) {
  CLI::App* list = add(app, args, "list", "List the plugins that are found, with their verdicts");
  list->add_option("NAME", args->list.names, "Of plugins or ops, such as softmax or '*norm*'")
      ->type_name("NAME");
  word(list->add_option("--verdict", args->list.verdict, "Only those with this verdict"),
       {"usable", "buildable", "undecided", "rejected"});
  word(list->add_option("--device", args->list.device, "Only those that are usable on it"),
       {"cpu", "cuda", "rocm"});
  list->add_flag("--details", args->list.details, "Show paths, architectures and reasons too");
  list->add_flag("--all", args->list.all,
                 "... and the notices and devices' reasons of usable plugins");
  GpuMachine* machine = &args->machine;
  add_gpu_machine(list, &machine->gpus, &machine->driver, &machine->cuda, &machine->rocm);
  add_plugin_path(list, args);
  CLI::App* show = add(app, args, "show", "Show an op: signature, documentation, devices, dtypes");
  show->add_option("OP", args->show.op, "An op, or PLUGIN/OP")->type_name("NAME")->required();
  CLI::Option* kernel = show->add_flag(
      "--kernel", args->show.kernel,
      "Instead: the source of the kernel that the op's formula becomes, for CUDA and HIP");
  show->add_option("--dtype", args->show.dtype,
                   "Of its tensors, such as float16; default: the first that the op has")
      ->type_name("DTYPE")
      ->needs(kernel);
  add_plugin_path(show, args);
  CLI::App* explain =
      add(app, args, "explain",
          "Say which plugin serves an op, and why no other does; what a code means");
  explain->add_option("NAME", args->subject, "An op, a plugin, PLUGIN/OP, or a reason's code")
      ->type_name("NAME");
  explain->add_flag("--codes", args->codes, "List every reason code instead");
  add_gpu_machine(explain, &machine->gpus, &machine->driver, &machine->cuda, &machine->rocm);
  add_plugin_path(explain, args);
  CLI::App* doctor =
      add(app, args, "doctor", "Say what this machine has, and what is missing for what");
  doctor->add_flag("--deepspeed", args->deepspeed,
                   "Say which of DeepSpeed's ops Opdock serves instead (from the Python package)");
  add_plugin_path(doctor, args);
}

void declare_inspect(CLI::App* app, Arguments* args) {
  InspectCommand* values = &args->inspect;
  CLI::App* inspect =
      add(app, args, "inspect",
          "Say whether native code will run here, and if not, why; runs none of it");
  inspect->footer(kInspectFooter);
  checked(inspect->add_option("PATH", values->paths,
                              "Shared objects, programs, wheels, folders, virtual environments"),
          "PATH", [](const std::string& text) {
            if (may_be_name(text)) return;
            // Whether a wheel has the member is known only once the wheel is read.
            const size_t member = text.find(".whl/");
            check_exists("PATH", "a shared object, a wheel or a folder",
                         member == text.npos ? text : text.substr(0, member + 4));
          });
  inspect->add_option("--package", values->packages, "Installed packages of the active Python")
      ->type_name("NAME")
      ->allow_extra_args(false);
  inspect->add_flag("--environment", values->environment,
                    "All installed packages of the active Python");
  inspect
      ->add_option(
          "--with", values->with,
          "Judge as if this installed package, and what it requires, were imported before;\n"
          "may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  inspect->add_flag("--diff", values->diff,
                    "Instead: what differs between two files, such as two builds of a library");
  add_gpu_machine(inspect, &values->gpus, &values->driver, &values->cuda, &values->rocm);
  part_of_machine(inspect->add_option("--glibc", values->glibc, "... with this GNU C library"),
                  "VERSION", &MachineSpec::glibc);
  part_of_machine(inspect->add_option("--libstdcxx", values->libstdcxx,
                                      "... with a libstdc++ up to this GLIBCXX symbol version"),
                  "VERSION", &MachineSpec::libstdcxx);
  word(inspect->add_option("--arch", values->arch, "... with processors of this kind"),
       {"x86_64", "aarch64"});
  word(inspect->add_option("--cpu", values->cpu, "... with processors of this level"),
       {"x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"});
  CLI::Option* html = inspect->add_option("--html", values->html, "Write a page too");
  checked(html, "FILE", [=](const std::string& text) { check_page("--html", text); });
}

void declare_run(CLI::App* app, Arguments* args) {
  CLI::App* run = add(app, args, "run", "Run an op on small inputs and print the result");
  CLI::Option* op = run->add_option("OP", args->run.op, "An op, or PLUGIN/OP");
  checked(op, "NAME", check_op_name)->required();
  run->add_option("ARGUMENT", args->run.words,
                  "Arguments: a number, text, True, None, [1,2,3], or randn(4,8), zeros(…),\n"
                  "ones(…), arange(…); tensors may end in :DTYPE")
      ->type_name("NAME=VALUE");
  run->add_option("--arg", args->run.arguments, "The same as an option")
      ->type_name("NAME=VALUE")
      ->take_all();
  run->add_option("--device", args->run.device, "cpu, cuda:0 or rocm:0")
      ->type_name("DEVICE")
      ->capture_default_str();
  number(run->add_option("--seed", args->run.seed, "For randn"), 0, UINT64_MAX, "")
      ->capture_default_str();
  add_plugin_path(run, args);
}

void declare_build(CLI::App* app, Arguments* args) {
  BuildCommand* values = &args->build;
  CLI::App* build = add(app, args, "build", "Build source plugins into the cache, ahead of time");
  build->footer(kBuildFooter);
  build->add_option("PATH", values->path, kSourceText)->type_name("PATH");
  build->add_flag("--all", values->all, "Instead of PATH: every source plugin that is found");
  build->add_flag("--jit", values->jit,
                  "Instead of building: compile the device source that binary plugins carry, as\n"
                  "their first use on such a GPU would, --jobs at a time");
  add_plugin_path(build, args);
  build
      ->add_option("--archs", values->cuda_archs,
                   "CUDA architectures, as in TORCH_CUDA_ARCH_LIST: \"8.0;9.0a;10.0+PTX\",\n"
                   "native, all or all-major")
      ->type_name("LIST");
  build
      ->add_option("--hip-archs", values->hip_archs,
                   "AMD architectures, as in PYTORCH_ROCM_ARCH: \"gfx90a;gfx1030\"")
      ->type_name("LIST");
  build
      ->add_option("--out", values->out,
                   "Put a copy of the result there: into a folder, or as this file")
      ->type_name("PATH");
  build->add_flag("--debug", values->debug, "Without optimisation, with debug information");
  build->add_flag("--retry", values->retry, "Even if these inputs failed to build before");
  number(build->add_option("--jobs", values->jobs,
                           "Compilers at once; by default by cores and memory"),
         1, UINT_MAX, "leave it out to have cores and memory decide");
  CLI::Option* timeout =
      build->add_option("--timeout", values->timeout, "For each plugin; by default half an hour");
  checked(timeout, "SECONDS", [=](const std::string& text) {
    check_seconds(timeout->get_name(), "leave it out for half an hour", text);
  });
}

void declare_install(CLI::App* app, Arguments* args) {
  CLI::App* install =
      add(app, args, "install", "Check a plugin and put it into the user's own plugin folder");
  install
      ->add_option("PATH", args->install.path,
                   "A shared object; or a folder with a plugin.toml, or the name of a source\n"
                   "plugin, which is built first")
      ->type_name("PATH")
      ->required();
  install->add_option("--to", args->install.folder, "Into this folder instead")
      ->type_name("FOLDER");
  install->add_flag("--force", args->install.force,
                    "In the place of any other file, and what this machine rejects");
  CLI::App* uninstall =
      add(app, args, "uninstall", "Remove a plugin from the user's own plugin folder");
  uninstall->add_option("NAME", args->subject, "Of the plugin")->type_name("NAME")->required();
}

void declare_trust(CLI::App* app, Arguments* args) {
  CLI::App* trust =
      add(app, args, "trust", "Allow plugins from a folder that others could have written");
  CLI::Option* dir = trust->add_option("DIR", args->subject, "The folder that holds the plugins");
  dir->type_name("FOLDER");
  CLI::Option* remove =
      trust->add_flag("--remove", args->removes, "Take the consent for DIR back")->needs(dir);
  trust
      ->add_flag("--force", args->forces,
                 "Also / and folders that everybody may write: code of everybody's may run then")
      ->needs(dir)
      ->excludes(remove);
  trust->add_flag("--list", args->lists, "List the folders that were trusted instead")
      ->excludes(dir);
}

void declare_author(CLI::App* app, Arguments* args) {
  CLI::App* new_plugin =
      add(app, args, "new", "Write a plugin's folder that builds and passes its own test");
  new_plugin->add_option("NAME", args->new_plugin.name, "Of the plugin and its op")
      ->type_name("NAME")
      ->required();
  word(new_plugin->add_option(
           "--kind", args->new_plugin.kind,
           "cpu; device: also kernels that NVRTC compiles; nvcc: also a .cu file"),
       {"cpu", "device", "nvcc"})
      ->capture_default_str();
  new_plugin
      ->add_option("--formula", args->new_plugin.formula,
                   "Instead: an op that is this formula of tensors, such as \"x * sigmoid(x)\"")
      ->type_name("FORMULA")
      ->excludes("--kind");
  new_plugin->add_option("--in", args->new_plugin.folder, "Where the folder goes; default: here")
      ->type_name("FOLDER");
  CLI::App* test =
      app->add_subcommand("test", "Build a source plugin and run its test_*.py by pytest");
  test->add_option("PATH", args->author.path, kSourceText)->type_name("PATH")->required();
  test->add_option("ARGS", args->author.arguments, "Further arguments of pytest, after --")
      ->type_name("ARGS");
  CLI::Option* soft = word(
      test->add_option("--device", args->author.device,
                       "soft: on software GPUs, CUDA's and AMD's, that execute the kernels here"),
      {"soft"});
  test->add_option("--arch", args->author.arch, "Of the one software GPU: sm_90, gfx1030, …")
      ->type_name("ARCH")
      ->needs(soft);
  word(test->add_option("--warp", args->author.warp,
                        "Only software GPUs with warps of 32 or 64 threads"),
       {"32", "64"})
      ->needs(soft);
  number(
      test->add_option("--seed", args->author.seed, "Of the order in which blocks and threads run"),
      0, UINT64_MAX, "")
      ->needs(soft);
  test->add_flag("--counters", args->author.counters,
                 "Print what each kernel did: sectors, bank conflicts, barriers")
      ->needs(soft);
}

void declare_wheel(CLI::App* app, Arguments* args) {
  CLI::App* wheel = app->add_subcommand(
      "wheel", "Build a source plugin and pack it as a Python package that Opdock finds");
  wheel->add_option("PATH", args->author.path, kSourceText)->type_name("PATH")->required();
  wheel->add_option("--out", args->author.out, "Where the wheel goes; default: here")
      ->type_name("FOLDER");
  wheel->add_option("--archs", args->author.cuda_archs, "CUDA architectures, as of build")
      ->type_name("LIST");
  wheel->add_option("--hip-archs", args->author.hip_archs, "AMD architectures, as of build")
      ->type_name("LIST");
}

void declare_bench(CLI::App* app, Arguments* args) {
  CLI::App* bench =
      app->add_subcommand("bench", "Build a source plugin and run its bench_*.py, or tune plugins");
  bench->footer(kBenchFooter);
  // main.cc checks PATH, because what it may be depends on the options.
  bench->add_option("PATH", args->author.path, kSourceText)->type_name("PATH");
  bench
      ->add_option("ARGS", args->author.arguments,
                   "Arguments of the benches, after --; more PLUGINS")
      ->type_name("ARGS");
  CLI::Option* tune = bench->add_flag(
      "--tune", args->author.tune,
      "Measure which ways of launching its ops are the fastest here, and keep them");
  bench->add_option("--device", args->author.device, "The one to measure on: cpu, cuda, cuda:1")
      ->type_name("DEVICE")
      ->needs(tune);
  bench->add_flag("--forget", args->author.forget, "Forget what --tune has kept")->excludes(tune);
}

void declare_cache(CLI::App* app, Arguments* args) {
  CLI::App* cache = app->add_subcommand("cache", "Show and tidy what was compiled and built");
  cache->require_subcommand(1);
  add(cache, args, "ls", "List what is in it");
  add(cache, args, "gc",
      "Remove the least recently used beyond $OPDOCK_CACHE_MAX_BYTES, and what dead\n"
      "processes left; never what is in use");
  add(cache, args, "clear", "Remove everything that is not in use");
  add(cache, args, "verify", "Check every byte, and set aside what is damaged");
  CLI::Option* made = add(cache, args, "export",
                          "Write everything into one file, for another machine of the same kind")
                          ->add_option("FILE", args->subject, "A tar file to write");
  checked(made, "FILE", [=](const std::string& text) {
    check_can_be_made(made->get_name(), text);
  })->required();
  CLI::App* import = add(cache, args, "import", "Take over what export wrote");
  existing(import->add_option("FILE", args->subject, "A tar file that export wrote"), "FILE",
           "one that `opdock cache export` wrote")
      ->required();
  import->add_flag("--trust", args->trusts,
                   "Also code, which will run as if it had been built here: vouch for who made it");
}

void declare_help(CLI::App* app, Arguments* args) {
  CLI::App* help = app->add_subcommand("help", "Show what a command does and takes");
  help->add_option("COMMAND", args->words, "Such as build, or cache gc; none: all of them")
      ->type_name("COMMAND");
  help->add_flag("--man", args->manual, "Print the manual page instead, for `man -l -`");
  CLI::App* completion =
      app->add_subcommand("completion", "Print a script that completes commands in a shell");
  word(completion->add_option("SHELL", args->subject, "Which one"), {"bash", "zsh", "fish"})
      ->required();
}

}  // namespace

void declare_subcommands(CLI::App* app, Arguments* args) {
  app->footer(kFooter);
  app->set_version_flag("--version", opdock_version(), "Print the version and exit");
  app->require_subcommand(1);
  declare_reports(app, args);
  declare_inspect(app, args);
  declare_run(app, args);
  declare_build(app, args);
  declare_install(app, args);
  declare_trust(app, args);
  declare_cache(app, args);
  declare_author(app, args);
  declare_bench(app, args);
  declare_wheel(app, args);
  declare_help(app, args);
}

}  // namespace opdock::cli

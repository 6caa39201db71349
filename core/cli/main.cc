// The opdock command.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/texts.h"
#include "command_line.h"
#include "errors.h"
#include "plugin_names.h"
#include "report_text.h"
#include "value_checks.h"

namespace {

using opdock::cli::Arguments;
using opdock::cli::Usage;

// Throws Usage unless the options of `build` go together.
void check_build(const opdock::cli::BuildCommand& build) {
  std::string found;
  const auto add = [&](bool is_given, const std::string& name) {
    if (is_given) found += (found.empty() ? "" : " and ") + name;
  };
  add(!build.path.empty(), "PATH (\"" + build.path + "\")");
  add(build.all, "--all");
  add(build.jit, "--jit");
  if ((!build.path.empty()) + build.all + build.jit != 1) {
    throw Usage{found.empty() ? "nothing to build" : found, "one of PATH, --all and --jit", "", "",
                ""};
  }
  if (build.jit && (build.debug || build.retry || build.timeout > 0 || !build.out.empty())) {
    add(build.debug, "--debug");
    add(build.retry, "--retry");
    add(build.timeout > 0, "--timeout");
    add(!build.out.empty(), "--out");
    throw Usage{found, "none of --debug, --retry, --timeout and --out with --jit", "", "", ""};
  }
}

// Throws Usage unless `bench` has what it runs or measures.
void check_bench(const opdock::cli::AuthorCommand& bench) {
  if (!bench.tune && !bench.forget) {
    if (bench.path.empty()) throw Usage{"no PATH", "PATH: a folder with a plugin.toml", "", "", ""};
    return;
  }
  std::vector<std::string> plugins = bench.arguments;
  if (!bench.path.empty()) plugins.push_back(bench.path);
  for (const std::string& plugin : plugins) {  // names have no slashes
    if (plugin.find('/') != plugin.npos) opdock::cli::check_source_plugin("PATH", plugin);
  }
}

int dispatch(const Arguments& args) {
  const std::string& command = args.command.front();
  if (command == "help") return opdock::cli::help_command(args);
  if (command == "version") {
    std::printf("%s\n", opdock_version());
    return opdock::cli::kGood;
  }
  if (command == "completion") return opdock::cli::completion_command(args.subject);
  if (command == "list") {
    opdock::cli::ListCommand list = args.list;
    list.json = args.json;
    list.plugin_path = args.plugin_path;
    list.machine = args.machine;
    return opdock::cli::list_command(list);
  }
  if (command == "inspect") {
    opdock::cli::InspectCommand inspect = args.inspect;
    inspect.json = args.json;
    for (std::string& path : inspect.paths) path = opdock::cli::file_named(path);
    return opdock::cli::inspect_command(inspect);
  }
  if (command == "show") {
    opdock::cli::ShowCommand show = args.show;
    show.json = args.json;
    show.plugin_path = args.plugin_path;
    return opdock::cli::show_command(show);
  }
  if (command == "install") {
    opdock::cli::InstallCommand install = args.install;
    install.json = args.json;
    install.path = opdock::cli::plugin_named(install.path, "");
    return opdock::cli::install_command(install);
  }
  if (command == "uninstall") return opdock::cli::uninstall_command(args.subject, args.json);
  if (command == "doctor") {
    return args.deepspeed ? opdock::cli::deepspeed_doctor_command(args.plugin_path, args.json)
                          : opdock::cli::doctor_command(args.plugin_path, args.json);
  }
  if (command == "build") {
    opdock::cli::BuildCommand build = args.build;
    build.json = args.json;
    build.plugin_path = args.plugin_path;
    check_build(build);
    if (!build.path.empty()) {
      build.path = opdock::cli::source_named(build.path, args.plugin_path);
    }
    return opdock::cli::build_command(build);
  }
  if (command == "trust") {
    if (args.subject.empty() && !args.lists) {
      throw Usage{"no DIR", "a folder, or --list for those that are trusted", "", "", ""};
    }
    const char* const action = args.lists     ? "list"
                               : args.removes ? "remove"
                               : args.forces  ? "force"
                                              : "add";
    return opdock::cli::trust_command(action, args.subject, args.json);
  }
  if (command == "test" || command == "bench" || command == "wheel") {
    opdock::cli::AuthorCommand author = args.author;
    author.what = command;
    if (command == "bench") check_bench(author);
    if (!author.tune && !author.forget) {
      author.path = opdock::cli::source_named(author.path, "");
    }
    return opdock::cli::author_command(author);
  }
  if (command == "new") {
    opdock::cli::NewCommand new_plugin = args.new_plugin;
    new_plugin.json = args.json;
    return opdock::cli::new_command(new_plugin);
  }
  if (command == "cache") {
    return opdock::cli::cache_command(args.command.back(), args.subject, args.trusts, args.json);
  }
  if (command == "explain" && args.codes) return opdock::cli::codes_command(args.json);
  if (command == "explain") {
    if (args.subject.empty()) {
      throw Usage{"no NAME", "an op, a plugin or a reason's code, or --codes for all of these", "",
                  "", ""};
    }
    return opdock::cli::explain_command(args.plugin_path, args.machine, args.subject, args.json);
  }
  opdock::cli::RunOptions run = args.run;
  run.plugin_path = args.plugin_path;
  run.json = args.json;
  return opdock::cli::run_command(run);
}

}  // namespace

int main(int argc, char** argv) {
  // --json counts even if the rest of the command line is invalid. The words after `--` are another
  // program's.
  char** const end = std::find_if(argv, argv + argc,
                                  [](const char* word) { return std::strcmp(word, "--") == 0; });
  const bool json =
      std::any_of(argv, end, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  Arguments args;
  try {
    args = opdock::cli::parse_command_line(argc, argv);
    const int status = dispatch(args);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    return opdock::cli::report_error(
        std::string("cannot write the result: ") + std::strerror(errno), false);
  } catch (Usage& usage) {
    if (usage.command.empty()) usage.command = opdock::join(args.command, " ");
    return opdock::cli::report_error(usage, json);
  } catch (const opdock::cli::Failure& failure) {
    return opdock::cli::report_error(failure, json);
  } catch (const std::exception& error) {
    return opdock::cli::report_error(std::string(error.what()), json);
  }
}

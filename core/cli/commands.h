// The subcommands. Each prints its result on stdout and returns the exit status; throws
// Failure or Usage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime.h"

namespace opdock::cli {

// The machine that plugins are judged for. Empty members: this machine.
struct GpuMachine {
  std::vector<std::string> gpus;  // "sm_100", "9.0", "gfx90a"
  std::string driver, cuda, rocm;
};

struct ListCommand {
  std::string plugin_path;
  std::vector<std::string> names;  // plugins or ops, perhaps with * and ?; none: all plugins
  std::string verdict;             // only those with this one; empty: any
  std::string device;              // only those that serve it: "cpu", "cuda", "rocm"; empty: any
  GpuMachine machine;
  bool details = false;  // paths, architectures and reasons too
  bool all = false;      // and the notices
  bool json = false;
};
int list_command(const ListCommand& command);

struct InspectCommand {
  std::vector<std::string> paths;     // shared objects, wheels, folders, virtual environments
  std::vector<std::string> packages;  // names of installed packages
  bool environment = false;           // all installed packages
  std::vector<std::string> with;      // installed packages that are imported first
  bool diff = false;                  // show what differs between two files instead
  // The machine, if it is not this one; as in the request of opdock_survey_json.
  std::vector<std::string> gpus;
  std::string driver, cuda, glibc, libstdcxx, arch, cpu, rocm;
  std::string html;  // a page to write; empty: none
  bool json = false;
};
int inspect_command(const InspectCommand& command);
int explain_command(const std::string& plugin_path, const GpuMachine& machine,
                    const std::string& name, bool json);
int codes_command(bool json);
int doctor_command(const std::string& plugin_path, bool json);
// Reports on DeepSpeed's ops. Becomes a Python process, as author_command() does.
int deepspeed_doctor_command(const std::string& plugin_path, bool json);
struct ShowCommand {
  std::string plugin_path;
  std::string op;
  bool kernel = false;  // print only the source of the kernel that the op's formula becomes
  std::string dtype;    // of that kernel's tensors; empty: the first that is declared
  bool json = false;
};
int show_command(const ShowCommand& command);
// Prints a reason code. Returns false, and prints nothing, if there is none of that name.
bool explain_code(const std::string& name, bool json);
struct InstallCommand {
  std::string path;    // a shared object, or a source plugin, which is built first
  std::string folder;  // empty: the user's own
  bool force = false;  // also replace any file, and install what this machine rejects
  bool json = false;
};
int install_command(const InstallCommand& command);
// Removes the plugin `name` from the user's own folder.
int uninstall_command(const std::string& name, bool json);
// action: add, force, remove or list; folder: for all but list, relative to the current folder or
// absolute.
int trust_command(const std::string& action, const std::string& folder, bool json);
int help_command(const struct Arguments& args);
int completion_command(const std::string& shell);  // "bash", "zsh", "fish"
// action: ls, gc, clear, verify, export or import; file: for export and import; trust: for import.
int cache_command(const std::string& action, const std::string& file, bool trust, bool json);

struct RunOptions {
  std::string plugin_path;
  std::string op;
  std::vector<std::string> arguments;  // "name=VALUE"
  std::vector<std::string> words;      // more arguments, given without --arg
  std::string device = "cpu";
  uint64_t seed = 0;
  bool json = false;
};
int run_command(const RunOptions& options);

struct BuildCommand {
  std::string path;         // a folder with a plugin.toml, or that file; empty: all or jit
  std::string out;          // a folder, or the name of a file there, for a copy; empty: none
  bool all = false;         // every source plugin that is found
  bool jit = false;         // compile what plugins carry as device source instead
  std::string plugin_path;  // where `all` and `jit` look instead of the default places
  std::string cuda_archs;   // docs/reference/architectures.md; empty: what `load` would ask for
  std::string hip_archs;
  bool debug = false;
  bool retry = false;
  unsigned jobs = 0;   // 0: by cores and free memory
  double timeout = 0;  // seconds; 0: half an hour
  bool json = false;
};
int build_command(const BuildCommand& command);
// Builds one plugin and prints only what failed; *file gets the path of the shared object.
int build_for_install(const BuildCommand& command, std::string* file);

struct NewCommand {
  std::string name;          // name of the plugin, its op and the folder
  std::string kind = "cpu";  // a folder of templates: "cpu", "device", "nvcc"
  std::string formula;       // of an op that has nothing else; empty: one of `kind`
  std::string folder;        // where the new one goes; empty: the current one
  bool json = false;
};
int new_command(const NewCommand& command);

struct AuthorCommand {
  std::string what;                    // "test", "bench" or "wheel"
  std::string path;                    // a plugin's folder
  std::vector<std::string> arguments;  // for pytest or the benches
  // For `wheel`: the architectures, as for `build`, and the folder that the wheel is written to.
  std::string cuda_archs, hip_archs, out;
  // For `bench`: tune measures ways of launching, on `device` or all devices; forget forgets what
  // was measured. With either of them the path and the arguments are folders or names of plugins,
  // perhaps none.
  bool tune = false;
  bool forget = false;
  // For `test`: "soft" runs only on software GPUs (docs/guide/testing-kernels.md); else on the
  // devices here.
  std::string device;
  std::string arch;  // architecture of one software GPU: "sm_90", "gfx90a"; empty: one of each kind
  int warp = 0;      // only software GPUs with warps of this width; 0: all
  uint64_t seed = 0;
  bool counters = false;
};
// Becomes a Python process and does not return, unless there is no Python.
int author_command(const AuthorCommand& command);

}  // namespace opdock::cli

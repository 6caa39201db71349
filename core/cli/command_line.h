// Parses the command line, and describes what it may contain.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "commands.h"

namespace opdock::cli {

// The parsed command line. Which members count depends on `command`.
struct Arguments {
  std::vector<std::string> command;  // {"cache", "gc"}; {"help"} for `opdock` without a word
  bool json = false;
  bool deepspeed = false;  // for doctor
  bool codes = false;
  bool removes = false;
  bool forces = false;
  bool trusts = false;
  bool lists = false;
  std::string plugin_path;
  std::string subject;             // the one thing that the command is about: a file, an op, a code
  std::vector<std::string> words;  // for `help`: the command to describe
  bool manual = false;             // for `help`: all of it, as a manual page
  GpuMachine machine;              // for list and explain
  ListCommand list;
  InspectCommand inspect;
  ShowCommand show;
  RunOptions run;
  BuildCommand build;
  InstallCommand install;
  NewCommand new_plugin;
  AuthorCommand author;
};

// Parses the command line. Throws Usage, with its command. `--help` becomes {"help"} with `words`,
// `--version` {"version"}.
Arguments parse_command_line(int argc, const char* const* argv);

// One option or argument.
struct OptionInfo {
  std::vector<std::string> names;    // "--archs"; empty: an argument without one
  std::string value;                 // "LIST", "FILE"; empty: it takes none
  std::vector<std::string> choices;  // the words that `value` may be, if only some are allowed
  std::string text;                  // a sentence, in one line
  bool required = false;
  bool many = false;  // may be given several times
};

// A command with its options and its own commands, in the order of its help.
struct CommandInfo {
  std::string name;  // "opdock", "cache", "gc"
  std::string text;
  std::string footer;  // paragraphs below the options; may be empty
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

// Returns all commands, from the declarations that parse_command_line() uses.
CommandInfo describe_commands();

// Returns what `opdock WORDS --help` prints. Throws Usage for words that are not a command.
std::string help_text(const std::vector<std::string>& words);

// Returns a completion script for a shell: "bash", "zsh" or "fish".
std::string completion_script(const CommandInfo& root, const std::string& shell);
// Returns opdock.1, for man.
std::string manual_page(const CommandInfo& root);

}  // namespace opdock::cli
